"""The Lua that runs in Redis: a list of operations on one queue, executed one after another.

Owns the layout of a queue's keys, the script, and the codes of its arguments and answers.

Keys, after the name of the queue (``b`` = ``KEYS[1]`` without its end):

- ``b:m`` hash: ``last`` = last T; ``until`` = when all keys expire; ``swept`` = when expired events
  were last removed; ``g:<group>`` = T of the newest event that was delivered to the group in the
  order of T, or 0; set as soon as the group has keys, which are found through it. ``f:<group>``:
  its ``:f`` may not be empty. ``owned``: ``b:own`` may not be empty.
- ``b:ids`` sorted set: id by T. ``b:exp``: id by the time it expires. ``b:body`` hash.
- ``b:own`` hash: the producer's own id -> id:group, while it is taken. ``b:names`` hash: id -> own
  id.
- ``b:c`` sorted set: <group>:<instance>:<connection> of each consumer by its last sign of life.
- ``b:g:<group>:p`` sorted set: ids in progress by deadline. ``:r``: ids to be delivered again by T;
  those to be delivered first by a negative number. ``:n`` hash: number of the last delivery, unless
  it is 1. ``:f`` sorted set: ids that were pushed to the front and are ahead of the pointer, so
  that they are not delivered again when the pointer gets there.

All of it follows these rules:

- An operation reads all it touches before it writes anything. So if a key has the wrong type, it
  fails before it has changed anything. Each operation runs under ``pcall``; the others continue.
- Redis checks its memory only at the first write of a script. A script with additions begins with
  a write that is refused when memory is full; then only the additions fail. All others begin with a
  write that is never refused, or, if their first write was refused, continue with one (DEL).
  Otherwise a full Redis could not be emptied.
- Consecutive operations of the same kind come as one run, executed with few commands.
- All keys expire some time after the last event, so that nothing remains if nobody calls.

Arguments: the codes that occur, since functions that a call does not need are not made; then for
each run its code, the number of operations, the number of arguments, and these. Times are in µs,
with an "@" before those that count from the epoch. See ``wire``.
"""

from disque_bananaq.redis_store.lua_ack_status import ACK_STATUS
from disque_bananaq.redis_store.lua_add_get import ADD_GET
from disque_trio.redis.script import Script

_GRACE = 60_000_000  # µs from the last event's expiry until the keys expire
_SOON = 2_000_000  # µs; waiting clients are told about deadlines nearer than this
_STALE = 30_000_000  # µs without a sign of life after which a consumer does not count
_MOST_BYTES = 4_000_000  # approximate limit for bodies in the answers of one call

_SETUP = (
    f"""
local GRACE, SOON, STALE, MOST = {_GRACE}, {_SOON}, {_STALE}, {_MOST_BYTES}
"""
    + r"""
local call, fmt, find, sub = redis.call, string.format, string.find, string.sub
local tonumber, insert = tonumber, table.insert
local base = sub(KEYS[1], 1, -3)
local meta, ids, exp, body = KEYS[1], base .. ':ids', base .. ':exp', base .. ':body'
local own, names, consumers = base .. ':own', base .. ':names', base .. ':c'
local MAX = 9007199254740991
local kinds = ARGV[1]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
-- All that most calls need from it, with the pointer of the group that most calls are about.
local about = (ARGV[2] == 'G' or ARGV[2] == 'K') and ARGV[5] or ''
local known = call('HMGET', meta, 'last', 'until', 'swept', 'owned', 'g:' .. about, 'f:' .. about)
local last = tonumber(known[1] or '0')
local lasting = tonumber(known[2] or '0')
local swept = tonumber(known[3] or '0')
local adds = find(kinds, '[Aa]')
local full, renew, stamped, checked, begun = nil, false, false, false, false
local idle = false
local news, told, groups, bytes, runs = false, {}, {}, 0, {}
local named = known[4] and true or false
-- Made only when needed: creating closures is the most expensive part of a call.
local unown, all_groups, forget, sweep, keep, rare

local function digits(n) return fmt('%.0f', n) end
local function parts(id)
  local _, _, t, ends = find(id, '^(%d+)_(%d+)')
  return tonumber(t), tonumber(ends)
end
local function moment(text)
  local t
  if sub(text, 1, 1) == '@' then t = tonumber(sub(text, 2)) else t = now + tonumber(text) end
  if t > MAX then return MAX elseif t < 0 then return 0 end
  return t
end
local function stamp()
  if now > last then last = now else last = last + 1 end
  stamped = true
  return last
end
local function group(g)
  local found = groups[g]
  if not found then
    local key = base .. ':g:' .. g
    local state
    if g == about then
      -- Only once: a flush or a sweep that follows may remove the group.
      state, about = {known[5], known[6]}, nil
    else
      state = call('HMGET', meta, 'g:' .. g, 'f:' .. g)
    end
    local pointer = state[1]
    found = {p = key .. ':p', r = key .. ':r', n = key .. ':n', f = key .. ':f',
             pointer = tonumber(pointer or '0'), exists = pointer and true or false,
             fronts = state[2] and true or false}
    groups[g] = found
  end
  return found
end
-- Immediately, since a flush or a sweep that follows finds the group through it.
local function exist(g, it)
  if it.exists then return end
  call('HSET', meta, 'g:' .. g, digits(it.pointer))
  it.exists = true
end
local function touch(...)
  local ends = lasting > now and lasting or now + 1440 * GRACE
  for _, key in ipairs({...}) do redis.pcall('PEXPIREAT', key, digits(math.ceil(ends / 1000))) end
end
-- Before the first write, at which Redis checks whether there is room.
local function begin()
  if begun then return end
  begun = true
  local refused = adds and redis.pcall('HSET', meta, 'last', digits(last))
  if type(refused) == 'table' and refused.err then
    full = refused.err
    if not find(full, 'OOM', 1, true) then error(full, 0) end
  end
  if full or not adds then call('DEL', base .. ':nothing') end
end
-- Before a write that is never refused.
local function remove()
  if adds then begin() end
  begun = true
end
"""
)

_RARE = r"""
rare = function()
  if sweep then return end

  -- Let the producer use its own id again. g: only if it was added for this group; nil: any group.
  unown = function(g, gone)
    if not named then return end
    local chosen = call('HMGET', names, unpack(gone))
    for i = 1, #gone do
      local holder = chosen[i] and call('HGET', own, chosen[i])
      if holder then
        local start = gone[i] .. ':'
        if sub(holder, 1, #start) == start and (not g or sub(holder, #start + 1) == g) then
          call('HDEL', own, chosen[i])
        end
      end
    end
  end
  all_groups = function()
    local fields, found = call('HKEYS', meta), {}
    for i = 1, #fields do
      if sub(fields[i], 1, 2) == 'g:' then insert(found, sub(fields[i], 3)) end
    end
    return found
  end
  forget = function(gone)
    begin()
    call('ZREM', exp, unpack(gone))
    call('ZREM', ids, unpack(gone))
    call('HDEL', body, unpack(gone))
    if named then
      unown(nil, gone)
      call('HDEL', names, unpack(gone))
    end
  end
  sweep = function(most)
    local done = 0
    while done < most do
      local gone = call('ZRANGEBYSCORE', exp, '-inf', digits(now), 'LIMIT', 0, 100)
      if #gone == 0 then break end
      begin()
      for _, g in ipairs(all_groups()) do
        local it = group(g)
        for _, key in ipairs({it.p, it.r, it.f}) do redis.pcall('ZREM', key, unpack(gone)) end
        redis.pcall('HDEL', it.n, unpack(gone))
      end
      forget(gone)
      done = done + #gone
      if #gone < 100 then break end
    end
    if done == 0 then return end
    renew = true
    if done < most then call('HSET', meta, 'swept', digits(now)) end
    -- A group whose pointer is before all events is as good as one that never existed.
    local first = call('ZRANGE', ids, 0, 0)[1]
    local oldest = first and parts(first) or math.huge
    for _, g in ipairs(all_groups()) do
      local it = group(g)
      if it.pointer < oldest and redis.pcall('ZCARD', it.f) == 0 then
        call('HDEL', meta, 'g:' .. g, 'f:' .. g)
        call('UNLINK', it.p, it.r, it.n)
        groups[g] = nil
      end
    end
  end
  keep = function(longest)
    if longest + GRACE > lasting then
      lasting = math.min(MAX, longest + GRACE + math.max(GRACE, math.floor((longest - now) / 4)))
      call('HSET', meta, 'until', digits(lasting))
      for _, g in ipairs(all_groups()) do
        local it = group(g)
        touch(it.p, it.r, it.n, it.f)
      end
      touch(own, names)
      renew = true
    end
  end
end
"""

_MAIN = r"""
-- If its own key is missing, `last` may be behind existing ids.
if not known[1] and adds then
  local newest = call('ZREVRANGE', ids, 0, 0)[1]
  if newest then last = parts(newest) end
end
if adds and now - swept > 100000 and call('ZCOUNT', exp, '-inf', digits(now)) > 0 then
  rare()
  sweep(#ARGV > 200 and 2 * #ARGV or 200)
end
local answers, at = {}, 2
while at <= #ARGV do
  local kind, n = ARGV[at], tonumber(ARGV[at + 1])
  if bytes > MOST then
    insert(answers, -1)
  else
    local fine, answer = pcall(runs[kind], at + 3, n)
    if not fine then answer = type(answer) == 'table' and answer.err or tostring(answer) end
    insert(answers, answer)
  end
  at = at + 3 + ARGV[at + 2]
end
if idle and not adds and call('ZCOUNT', exp, '-inf', digits(now)) > 0 then
  rare()
  sweep(200)
end
if stamped then begin() end
if begun or renew then
  local fields = {}
  if stamped then fields = {'last', digits(last)} end
  for g, it in pairs(groups) do
    if it.moved then insert(fields, 'g:' .. g) insert(fields, digits(it.pointer)) end
    if it.touched then
      for key in pairs(it.touched) do touch(it[key]) end
    end
  end
  if #fields > 0 then call('HSET', meta, unpack(fields)) end
  if lasting == 0 then
    call('PEXPIREAT', meta, digits(math.ceil((now + GRACE) / 1000)))
  elseif renew then
    touch(meta, ids, exp, body)
  end
end
if news then
  redis.pcall('PUBLISH', base .. ':new', '*')
else
  for g in pairs(told) do redis.pcall('PUBLISH', base .. ':new', '=' .. g) end
end
return answers
"""

OPERATIONS = Script(_SETUP + _RARE + ADD_GET + ACK_STATUS + _MAIN)
