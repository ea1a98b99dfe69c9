"""The Lua that runs in Redis: every change of a queue that takes more than one command.

Owns the scripts and the codes of their replies. Rules they all follow:

- They read all they touch before they write. A key of a wrong type so ends a script with an error
  while nothing has changed.
- Redis asks about its memory at the first write of a script only. A put begins with one that is
  refused when the memory is full, so that nothing has changed. All that takes elements out, or
  gives a role back or keeps it, begins with a DEL, which is never refused: else a Redis that is
  full of elements could not be emptied, and roles would be lost.
- A role is free while its list has an element; given back, the list has exactly one again.
- Whether the queue is full is asked of the length and the bound, never of `not_full`. Only while
  the producer's role is free, or ours, nobody can be between taking the permit and pushing; then
  `not_full` is rewritten to what it has to be, which also heals what a crash left.
- Who of us keeps a role between commands leaves `held` (id#number of this hold) and `lease` (the
  same, expiring soon unless renewed). A role that is taken, has `held` by the very client that
  `:producer` names and no `lease` was left by a dead client of ours, so another may have it. Other
  kinds of clients set no `held`, and are never robbed.

Arguments of put and get: id, number of the hold, lease in ms, "1" if we hold the role already,
what to do with it afterwards: "never" keep it, "rest" keep it unless all was done, "always" keep.

Replies: a number or the elements; or a list that begins with a code, on errors.
"""

from disque_trio.redis_link import Script

MISSING = 1
CLOSED = 2
IN_USE = 3
LOST = 4
NOT_A_NUMBER = 5
EXISTS = 6
BUSY = 7
WAIT = 8

# How long after its last renewal `held` remains, to tell a dead client of ours from others: 7 days.
_HELD_MS = 7 * 24 * 3600 * 1000

_COMMON = f"""
local HELD_MS = {_HELD_MS}
local function number(key)
  local value = redis.call('GET', key)
  if not value then return '0' end
  -- What INCRBY takes, and leaves room to grow: it must not fail after something was popped.
  if #value < 19 and (value == '0' or string.match(value, '^%-?[1-9]%d*$')) then return value end
  return nil, value
end
local function one(key, length)
  if length ~= 1 then
    redis.call('LPUSH', key, '1')
    redis.call('LTRIM', key, 0, 0)
  end
end
local function permit(key, length, wanted)
  if wanted then one(key, length) elseif length > 0 then redis.call('DEL', key) end
end
local function keep(lease, held, uid, hold, ms)
  redis.call('SET', held, uid .. '#' .. hold, 'PX', HELD_MS)
  redis.call('SET', lease, hold, 'PX', ms)
end
local function abandoned(lease, held, user)
  local holder = redis.call('GET', held)
  return holder and user and redis.call('EXISTS', lease) == 0
    and string.sub(holder, 1, #user + 1) == user .. '#'
end
"""

# What put and get have in common: checks, and who has the role. Keys: 1 data, 2 bound, 3 closed,
# 4 not_full, 5 role, 6 role_free, 7 messages, 8 bytes, 9 lease, 10 held, 11 producer_free.
_ENTER = f"""
local uid, hold, ms, mine, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local text = redis.call('GET', KEYS[2])
local closed = redis.call('LLEN', KEYS[3])
local permits = redis.call('LLEN', KEYS[4])
local user = redis.call('GET', KEYS[5])
local free = redis.call('LLEN', KEYS[6])
local length = redis.call('LLEN', KEYS[1])
local held = false
if mine then held = redis.call('GET', KEYS[10]) == uid .. '#' .. hold end
local function give_back()
  if held then
    redis.call('DEL', KEYS[9], KEYS[10])
    one(KEYS[6], free)
  end
end
if not text then
  give_back()
  return {{{MISSING}}}
end
if not string.match(text, '^%d+$') then return {{{NOT_A_NUMBER}, KEYS[2], text}} end
local bound = tonumber(text)
if mine then
  if not held then return {{{LOST}}} end
elseif free == 0 and not abandoned(KEYS[9], KEYS[10], user) then
  return {{{IN_USE}, user or ''}}
end
local function leave(finished)
  if after == 'always' or (after == 'rest' and not finished) then
    keep(KEYS[9], KEYS[10], uid, hold, ms)
    if free > 0 then redis.call('DEL', KEYS[6]) end
  else
    if held or free == 0 then redis.call('DEL', KEYS[9], KEYS[10]) end
    one(KEYS[6], free)
  end
end
"""

_COUNTERS = f"""
for i = 7, 8 do
  local value, found = number(KEYS[i])
  if not value then return {{{NOT_A_NUMBER}, KEYS[i], found}} end
end
"""

# Further arguments: the elements. Reply: how many of them are in the queue now, 0 if it is full.
PUT = (
    _COMMON
    + _ENTER
    + f"""
if closed > 0 then
  if after ~= 'always' then give_back() end
  return {{{CLOSED}}}
end
"""
    + _COUNTERS
    + """
local count = #ARGV - 5
local total = count
if bound > 0 then count = math.max(0, math.min(count, bound - length)) end
if user ~= uid then redis.call('SET', KEYS[5], uid) end
if count > 0 then
  local bytes = 0
  for i = 6, 5 + count do bytes = bytes + #ARGV[i] end
  redis.call('INCRBY', KEYS[7], count)
  redis.call('INCRBY', KEYS[8], bytes)
  redis.call('LPUSH', KEYS[1], unpack(ARGV, 6, 5 + count))
end
permit(KEYS[4], permits, bound == 0 or length + count < bound)
leave(count == total)
return count
"""
)

# Further argument: the most elements wanted. Reply: the elements, none if it is empty.
GET = (
    _COMMON
    + _ENTER
    + _COUNTERS
    + f"""
local producer_free = redis.call('LLEN', KEYS[11])
if length == 0 and closed > 0 then
  if after ~= 'always' then give_back() end
  return {{{CLOSED}}}
end
redis.call('DEL', KEYS[9])
if user ~= uid then redis.call('SET', KEYS[5], uid) end
local items = {{}}
local count = math.min(length, tonumber(ARGV[6]))
if count > 0 then
  if count == 1 then items = {{redis.call('RPOP', KEYS[1])}}
  else items = redis.call('RPOP', KEYS[1], count) end
  local bytes = 0
  for i = 1, count do bytes = bytes + #items[i] end
  redis.call('INCRBY', KEYS[7], count)
  redis.call('INCRBY', KEYS[8], bytes)
end
local room = bound == 0 or length - count < bound
if producer_free > 0 then permit(KEYS[4], permits, room)
elseif count > 0 and room then one(KEYS[4], permits) end
leave(count > 0)
return items
"""
)

# Take a role to keep it. Arguments as of put, with "always". A producer cannot have a closed queue.
TAKE_PRODUCER = (
    _COMMON
    + _ENTER
    + f"""
if closed > 0 then
  give_back()
  return {{{CLOSED}}}
end
redis.call('SET', KEYS[5], uid)
permit(KEYS[4], permits, bound == 0 or length < bound)
leave(false)
return 1
"""
)
TAKE_CONSUMER = (
    _COMMON
    + _ENTER
    + """
redis.call('DEL', KEYS[9])
redis.call('SET', KEYS[5], uid)
leave(false)
return 1
"""
)

# Close: as put, without elements.
CLOSE = (
    _COMMON
    + _ENTER
    + f"""
if closed > 0 then
  if after ~= 'always' then give_back() end
  return {{{CLOSED}}}
end
redis.call('DEL', KEYS[9])
redis.call('SET', KEYS[5], uid)
redis.call('LPUSH', KEYS[3], '0', '0')
leave(true)
return 1
"""
)

# Keys as of put or get. Arguments: id, number of the hold, lease in ms. Reply: 1, or 0 if lost.
RENEW = (
    _COMMON
    + """
if redis.call('GET', KEYS[10]) ~= ARGV[1] .. '#' .. ARGV[2] then return 0 end
redis.call('DEL', KEYS[9])
keep(KEYS[9], KEYS[10], ARGV[1], ARGV[2], ARGV[3])
return 1
"""
)

# Keys as of put or get. Arguments: id, number of the hold. Gives the role back if it is ours, also
# to somebody who is deleting the queue. Reply: 1, or 0 if it is not ours.
RELEASE = (
    _COMMON
    + """
if redis.call('GET', KEYS[10]) ~= ARGV[1] .. '#' .. ARGV[2] then return 0 end
local text = redis.call('GET', KEYS[2])
local length = redis.call('LLEN', KEYS[1])
local permits = redis.call('LLEN', KEYS[4])
local free = redis.call('LLEN', KEYS[6])
redis.call('DEL', KEYS[9], KEYS[10])
one(KEYS[6], free)
local bound = text and tonumber(text)
if bound and KEYS[6] == KEYS[11] then
  permit(KEYS[4], permits, bound == 0 or length < bound)
end
return 1
"""
)

# From here on the keys are all twelve and our six, in the order of `keys.PROTOCOL` and `SIDE`.
_ALL = """
local function roles()
  local producer, consumer = redis.call('LLEN', KEYS[6]), redis.call('LLEN', KEYS[10])
  local p = producer > 0 or abandoned(KEYS[13], KEYS[14], redis.call('GET', KEYS[5]))
  local c = consumer > 0 or abandoned(KEYS[15], KEYS[16], redis.call('GET', KEYS[9]))
  return p, c
end
local function types()
  for i = 1, 12 do
    if i == 1 or i == 3 or i == 4 or i == 6 or i == 10 then redis.call('LLEN', KEYS[i])
    else redis.call('STRLEN', KEYS[i]) end
  end
end
"""

# Arguments: bound, "1" to remove what is left of another queue first.
CREATE = (
    _COMMON
    + _ALL
    + f"""
types()
if redis.call('EXISTS', KEYS[2]) == 1 then return {{{EXISTS}}} end
local left = {{{BUSY}}}
for i = 1, 12 do
  if redis.call('EXISTS', KEYS[i]) == 1 then left[#left + 1] = KEYS[i] end
end
if #left > 1 and ARGV[2] ~= '1' then
  -- One of us began to delete it and died: finish that, if nobody has a role any more.
  local p, c = roles()
  local died = redis.call('EXISTS', KEYS[18]) == 1 and redis.call('EXISTS', KEYS[17]) == 0
  if not (died and p and c) then return left end
end
redis.call('SET', KEYS[2], ARGV[1])
for i = 1, 18 do
  if i ~= 2 then redis.call('DEL', KEYS[i]) end
end
redis.call('LPUSH', KEYS[6], '1')
redis.call('LPUSH', KEYS[10], '1')
redis.call('LPUSH', KEYS[4], '1')
return 1
"""
)

# Arguments: id, number of the hold, lease in ms, "1" to go on with what we began. Reply: 1 when all
# is gone; or WAIT, 1 if it waits for the producer and 0 if for the consumer, the id of that one,
# the bound the queue had, and whether it was open.
DELETE = (
    _COMMON
    + _ALL
    + f"""
local me = ARGV[1] .. '#' .. ARGV[2]
types()
local bound, open = '', 0
if ARGV[4] == '1' then
  if redis.call('GET', KEYS[18]) ~= me then return {{{MISSING}}} end
  if redis.call('EXISTS', KEYS[2]) == 1 then
    redis.call('DEL', KEYS[17], KEYS[18])
    return {{{BUSY}, KEYS[2]}}
  end
else
  bound = redis.call('GET', KEYS[2])
  if not bound then return {{{MISSING}}} end
  open = redis.call('LLEN', KEYS[3]) == 0 and 1 or 0
end
local p, c = roles()
if p and c then
  redis.call('DEL', unpack(KEYS))
  return 1
end
redis.call('DEL', KEYS[17])
keep(KEYS[17], KEYS[18], ARGV[1], ARGV[2], ARGV[3])
if ARGV[4] ~= '1' then
  redis.call('LPUSH', KEYS[3], '0', '0')
  one(KEYS[4], redis.call('LLEN', KEYS[4]))
  redis.call('DEL', KEYS[2])
end
local user = redis.call('GET', p and KEYS[9] or KEYS[5]) or ''
return {{{WAIT}, p and 0 or 1, user, bound, open}}
"""
)

# Take a deletion back that could not be finished. Arguments: id, number of the hold, the bound it
# had, "1" if it was open.
UNDELETE = (
    _COMMON
    + """
if redis.call('GET', KEYS[18]) ~= ARGV[1] .. '#' .. ARGV[2] then return 0 end
if redis.call('EXISTS', KEYS[2]) == 0 then
  local length, permits = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[4])
  local free = redis.call('LLEN', KEYS[6])
  redis.call('DEL', KEYS[17], KEYS[18])
  redis.call('SET', KEYS[2], ARGV[3])
  if ARGV[4] == '1' then redis.call('DEL', KEYS[3]) end
  if free > 0 then
    local bound = tonumber(ARGV[3])
    permit(KEYS[4], permits, bound == 0 or length < bound)
  end
end
redis.call('DEL', KEYS[17], KEYS[18])
return 1
"""
)

# Reply: length, bound, closed, producer, consumer, whether they are free, the four counters, the
# two leases in ms (below 0: none), permits.
STATS = (
    _COMMON
    + f"""
local bound = redis.call('GET', KEYS[2])
if not bound then return {{{MISSING}}} end
if not string.match(bound, '^%d+$') then return {{{NOT_A_NUMBER}, KEYS[2], bound}} end
local reply = {{0, redis.call('LLEN', KEYS[1]), bound, redis.call('LLEN', KEYS[3]),
  redis.call('GET', KEYS[5]), redis.call('GET', KEYS[9]),
  redis.call('LLEN', KEYS[6]), redis.call('LLEN', KEYS[10])}}
for _, i in ipairs({{7, 8, 11, 12}}) do
  local value, found = number(KEYS[i])
  if not value then return {{{NOT_A_NUMBER}, KEYS[i], found}} end
  reply[#reply + 1] = value
end
reply[#reply + 1] = redis.call('PTTL', KEYS[13])
reply[#reply + 1] = redis.call('PTTL', KEYS[15])
reply[#reply + 1] = redis.call('LLEN', KEYS[4])
return reply
"""
)

# Reply: of each key that exists its number, type, value or length, and ms to live (below 0: none).
DOCTOR = """
local reply = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  if kind ~= 'none' then
    local value = ''
    if kind == 'string' then value = redis.call('GETRANGE', key, 0, 1023)
    elseif kind == 'list' then value = tostring(redis.call('LLEN', key)) end
    reply[#reply + 1] = {i - 1, kind, value, redis.call('PTTL', key)}
  end
end
return reply
"""

# Give a role back that a dead client has, whatever kind it was. Keys as of put or get. Arguments:
# id of the client that has to have it, and "1" if it matters. Reply: 0 if it was free, or its id.
REPAIR = (
    _COMMON
    + f"""
local text = redis.call('GET', KEYS[2])
if not text then return {{{MISSING}}} end
if not string.match(text, '^%d+$') then return {{{NOT_A_NUMBER}, KEYS[2], text}} end
local bound = tonumber(text)
local length, permits = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[4])
local user = redis.call('GET', KEYS[5]) or ''
local free = redis.call('LLEN', KEYS[6])
if free > 0 then return 0 end
if ARGV[2] == '1' and user ~= ARGV[1] then return {{{IN_USE}, user}} end
redis.call('DEL', KEYS[9], KEYS[10])
one(KEYS[6], free)
if redis.call('LLEN', KEYS[11]) > 0 then
  permit(KEYS[4], permits, bound == 0 or length < bound)
end
return user
"""
)


put = Script(PUT)
get = Script(GET)
take_producer = Script(TAKE_PRODUCER)
take_consumer = Script(TAKE_CONSUMER)
close = Script(CLOSE)
renew = Script(RENEW)
release = Script(RELEASE)
create = Script(CREATE)
delete = Script(DELETE)
undelete = Script(UNDELETE)
stats = Script(STATS)
doctor = Script(DOCTOR)
repair = Script(REPAIR)
