"""Pieces of Lua that the scripts share, and the codes of their replies.

Owns how roles are taken and given back, what a permit is, and the checks that come first. Scripts
are composed of these snippets; ``scripts`` describes the rules they follow.
"""

MISSING = 1
CLOSED = 2
IN_USE = 3
LOST = 4
NOT_A_NUMBER = 5
EXISTS = 6
BUSY = 7
WAIT = 8

# How long ``held`` remains after its last renewal, to tell dead clients of ours from others: 7
# days.
_HELD_MS = 7 * 24 * 3600 * 1000

COMMON = f"""
local HELD_MS = {_HELD_MS}
local function number(key)
  local value = redis.call('GET', key)
  if not value then return '0' end
  -- Accept what INCRBY accepts, with room to grow: it must not fail after elements were popped.
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

# ``text`` is the bound that was found for an existing queue.
BOUND = f"""
if #text > 18 or not string.match(text, '^%d+$') then return {{{NOT_A_NUMBER}, KEYS[2], text}} end
local bound = tonumber(text)
"""

# For other scripts: the bound, or an error if the queue does not exist.
EXISTING = (
    f"""
local text = redis.call('GET', KEYS[2])
if not text then return {{{MISSING}}} end
"""
    + BOUND
)

# The common part of put and get: checks, and who has the role. Keys: 1 data, 2 bound, 3 closed,
# 4 not_full, 5 role, 6 role_free, 7 messages, 8 bytes, 9 lease, 10 held, 11 producer_free.
ENTER = (
    f"""
local uid, hold, ms, mine, after = ARGV[1], ARGV[2], ARGV[3], ARGV[4] == '1', ARGV[5]
local text = redis.call('GET', KEYS[2])
local closed = redis.call('LLEN', KEYS[3])
local permits = redis.call('LLEN', KEYS[4])
local user = redis.call('GET', KEYS[5])
local free = redis.call('LLEN', KEYS[6])
local length = redis.call('LLEN', KEYS[1])
redis.call('STRLEN', KEYS[9])
redis.call('STRLEN', KEYS[10])
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
"""
    + BOUND
    + f"""
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
)

# After ENTER: an error if the queue is closed.
ONLY_OPEN = f"""
if closed > 0 then
  if after ~= 'always' then give_back() end
  return {{{CLOSED}}}
end
"""

# The hold must be ours. Keys as for ENTER. Arguments: id, number of the hold.
OURS = """
if redis.call('GET', KEYS[10]) ~= ARGV[1] .. '#' .. ARGV[2] then return 0 end
"""

COUNTERS = f"""
for i = 7, 8 do
  local value, found = number(KEYS[i])
  if not value then return {{{NOT_A_NUMBER}, KEYS[i], found}} end
end
"""

# For scripts whose KEYS are all twelve and our six, in the order of ``keys.PROTOCOL`` and ``SIDE``.
ALL = """
local function roles()
  local producer, consumer = redis.call('LLEN', KEYS[6]), redis.call('LLEN', KEYS[10])
  local p = producer > 0 or abandoned(KEYS[13], KEYS[14], redis.call('GET', KEYS[5]))
  local c = consumer > 0 or abandoned(KEYS[15], KEYS[16], redis.call('GET', KEYS[9]))
  return p, c
end
local function types()
  for i = 1, 18 do
    if i == 1 or i == 3 or i == 4 or i == 6 or i == 10 then redis.call('LLEN', KEYS[i])
    else redis.call('STRLEN', KEYS[i]) end
  end
end
"""
