"""The Lua scripts that run in Redis: every change of a queue that takes more than one command.

Owns the scripts, which are composed of ``snippets``. All follow these rules:

- They read everything they touch before they write anything. So if a key has the wrong type, the
  script fails before it has changed anything.
- Redis checks its memory only at the first write of a script. A put begins with a write that is
  refused when memory is full, so that nothing has changed. Scripts that take elements out, or that
  give back or keep a role, begin with a DEL, which is never refused; otherwise a Redis full of
  elements could not be emptied, and roles would be lost.
- A role is free while its list has an element; giving it back leaves exactly one element in it.
- Whether the queue is full is decided by its length and bound, never by ``not_full``. While the
  producer role is free, or ours, nobody can be between taking the permit and pushing. Then, and
  only then, ``not_full`` is set to what it should be, which also repairs what a crash left behind.
- Clients of ours that keep a role between commands set ``held`` (id#number of this hold) and
  ``lease`` (the same, expiring soon unless renewed). If a role is taken, ``held`` names the client
  that ``:producer`` names, and there is no ``lease``, then the role belonged to a dead client of
  ours, and another one may take it. Clients of other kinds do not set ``held``, so their roles are
  never taken away.

Arguments of put and get: id, number of the hold, lease in ms, "1" if we already hold the role, and
when to keep the role afterwards: "never", "rest" (unless all was done) or "always".

Replies: a number or the elements; errors are lists that begin with a code.
"""

from collections.abc import Sequence

from disque_pressure.snippets import (
    ALL,
    BUSY,
    CLOSED,
    COMMON,
    COUNTERS,
    ENTER,
    EXISTING,
    EXISTS,
    IN_USE,
    MISSING,
    NOT_A_NUMBER,
    ONLY_OPEN,
    OURS,
    WAIT,
)
from disque_trio.redis.script import Script

# At most this many elements, and about this many bytes, go into one script or its reply: Redis
# serves nobody else meanwhile, and Lua cannot unpack more than 8000 values at once.
MOST_ITEMS = 1000
MOST_BYTES = 1 << 20


def _script(name: str, *parts: str, allow_oom: bool = True) -> Script:
    return Script("".join(parts), f"pressure_{name}", allow_oom)


# Further arguments: the elements. Reply: how many of them are now in the queue; 0 if it is full.
put = _script(
    "put",
    COMMON + ENTER + ONLY_OPEN + COUNTERS,
    """
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
""",
    allow_oom=False,
)

# Further argument: the most elements wanted. Reply: the elements; none if the queue is empty. They
# are popped a few at a time, until the reply is large: if a reply takes too long, the client gives
# it up, and loses all that is in it.
get = _script(
    "get",
    COMMON + ENTER + COUNTERS,
    f"""
local producer_free = redis.call('LLEN', KEYS[11])
if length == 0 and closed > 0 then
  if after ~= 'always' then give_back() end
  return {{{CLOSED}}}
end
redis.call('DEL', KEYS[9])
if user ~= uid then redis.call('SET', KEYS[5], uid) end
local items = {{}}
local most = math.min(length, tonumber(ARGV[6]), {MOST_ITEMS})
local count, bytes, step = 0, 0, 10
while count < most and bytes < {MOST_BYTES} do
  local part = redis.call('RPOP', KEYS[1], math.min(most - count, step))
  for i = 1, #part do
    items[count + i] = part[i]
    bytes = bytes + #part[i]
  end
  count = count + #part
  step = step * 2
end
if count > 0 then
  redis.call('INCRBY', KEYS[7], count)
  redis.call('INCRBY', KEYS[8], bytes)
end
local room = bound == 0 or length - count < bound
if producer_free > 0 then permit(KEYS[4], permits, room)
elseif count > 0 and room then one(KEYS[4], permits) end
leave(count > 0)
return items
""",
)

# Take a role to keep it. Arguments as for put, with "always". A closed queue has no producer.
take_producer = _script(
    "take_producer",
    COMMON + ENTER + ONLY_OPEN,
    """
redis.call('SET', KEYS[5], uid)
permit(KEYS[4], permits, bound == 0 or length < bound)
leave(false)
return 1
""",
    allow_oom=False,
)
take_consumer = _script(
    "take_consumer",
    COMMON + ENTER,
    """
redis.call('DEL', KEYS[9])
redis.call('SET', KEYS[5], uid)
leave(false)
return 1
""",
)

# Close: like put, without elements.
close = _script(
    "close",
    COMMON + ENTER + ONLY_OPEN,
    """
redis.call('DEL', KEYS[9])
redis.call('SET', KEYS[5], uid)
redis.call('LPUSH', KEYS[3], '0', '0')
leave(true)
return 1
""",
)

# Keys as for put or get. Arguments: id, number of the hold, lease in ms. Reply: 1, or 0 if lost.
renew = _script(
    "renew",
    COMMON + OURS,
    """
redis.call('DEL', KEYS[9])
keep(KEYS[9], KEYS[10], ARGV[1], ARGV[2], ARGV[3])
return 1
""",
)

# Keys as for put or get. Arguments: id, number of the hold. Gives the role back if it is ours, also
# to a client that is deleting the queue. Reply: 1, or 0 if it is not ours.
release = _script(
    "release",
    COMMON + OURS,
    """
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
""",
)

# From here on, KEYS are all twelve and our six, in the order of ``keys.PROTOCOL`` and ``SIDE``.

# Arguments: bound, "1" to remove the remains of another queue first.
create = _script(
    "create",
    COMMON + ALL,
    f"""
types()
if redis.call('EXISTS', KEYS[2]) == 1 then return {{{EXISTS}}} end
local left = {{{BUSY}}}
for i = 1, 12 do
  if redis.call('EXISTS', KEYS[i]) == 1 then left[#left + 1] = KEYS[i] end
end
if #left > 1 and ARGV[2] ~= '1' then
  -- A client of ours began to delete it and died: finish that if nobody has a role any more.
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
""",
    allow_oom=False,
)

# Arguments: id, number of the hold, lease in ms, "1" to continue our own deletion. Reply: 1 when
# all is gone; or WAIT, 1 if it waits for the producer and 0 if for the consumer, the id of that
# client, the bound that the queue had, and whether it was open.
delete = _script(
    "delete",
    COMMON + ALL,
    f"""
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
""",
)

# Undo a deletion that could not be finished. Arguments: id, number of the hold, the bound it had,
# "1" if it was open.
undelete = _script(
    "undelete",
    COMMON,
    """
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
""",
)

# Reply: length, bound, closed, producer, consumer, whether they are free, the four counters, the
# two leases in ms (negative: none), permits.
stats = _script(
    "stats",
    COMMON + EXISTING,
    f"""
local reply = {{0, redis.call('LLEN', KEYS[1]), text, redis.call('LLEN', KEYS[3]),
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
""",
)

# Reply: for each existing key its index, type, value or length, and ms to live (negative: forever).
doctor = _script(
    "doctor",
    """
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
""",
)

# Free the role of a dead client of any kind. Keys as for put or get. Arguments: the id that its
# holder must have, and "1" if that matters. Reply: 0 if it was free, or the holder's id.
repair = _script(
    "repair",
    COMMON + EXISTING,
    f"""
local length, permits = redis.call('LLEN', KEYS[1]), redis.call('LLEN', KEYS[4])
local user = redis.call('GET', KEYS[5]) or ''
local free = redis.call('LLEN', KEYS[6])
redis.call('STRLEN', KEYS[9])
redis.call('STRLEN', KEYS[10])
if free > 0 then return 0 end
if ARGV[2] == '1' and user ~= ARGV[1] then return {{{IN_USE}, user}} end
redis.call('DEL', KEYS[9], KEYS[10])
one(KEYS[6], free)
if redis.call('LLEN', KEYS[11]) > 0 then
  permit(KEYS[4], permits, bound == 0 or length < bound)
end
return user
""",
)


def chunk(items: Sequence[bytes], start: int) -> Sequence[bytes]:
    """Return as many of ``items`` from ``start`` on as fit into one script, but at least one."""
    size = 0
    for end in range(start, min(len(items), start + MOST_ITEMS)):
        size += len(items[end])
        if size > MOST_BYTES:
            return items[start : max(end, start + 1)]
    return items[start : start + MOST_ITEMS]
