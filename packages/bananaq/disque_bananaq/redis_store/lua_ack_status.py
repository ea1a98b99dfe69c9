"""The Lua for events that were delivered, and for whole queues.

Owns the remaining functions ``runs.<code>``, see ``lua_add_get``: acknowledging, extending holds,
putting back, flushing, consumers, status.
"""

ACK_STATUS = r"""
local acknowledge
if find(kinds, '[Kk]') then
  acknowledge = function(g, it, acked, numbered)
    remove()
    call('ZREM', it.p, unpack(acked))
    if numbered then call('HDEL', it.n, unpack(acked)) end
    if named then rare() unown(g, acked) end
  end
  function runs.K(at, n)
    local it, wanted, answers, acked = group(ARGV[at]), {}, {}, {}
    for i = 1, n do wanted[i] = ARGV[at + 2 * i - 1] end
    local deadlines = call('ZMSCORE', it.p, unpack(wanted))
    local numbers = call('HMGET', it.n, unpack(wanted))
    local seen, numbered = {}, false
    for i = 1, n do
      local id = wanted[i]
      answers[i] = 0
      if deadlines[i] and tonumber(deadlines[i]) > now and not seen[id]
          and (numbers[i] or '1') == ARGV[at + 2 * i] then
        local _, ends = parts(id)
        if ends > now then
          seen[id] = true
          numbered = numbered or numbers[i]
          answers[i] = 1
          insert(acked, id)
        end
      end
    end
    if #acked > 0 then acknowledge(ARGV[at], it, acked, numbered) end
    return answers
  end
end
if find(kinds, '[kWwRr]') then
  -- Whether the event with this delivery is in progress, in time.
  local function held(it, id, number)
    local deadline = call('ZSCORE', it.p, id)
    if not deadline or tonumber(deadline) <= now then return false end
    local _, ends = parts(id)
    return ends > now and (call('HGET', it.n, id) or '1') == number
  end
  -- The event with this own id, if the group has it or is to get it again.
  local function owned(it, chosen)
    local holder = call('HGET', own, chosen)
    if not holder then return nil end
    local id = sub(holder, 1, find(holder, ':', 1, true) - 1)
    local _, ends = parts(id)
    if ends <= now or not (call('ZSCORE', it.p, id) or call('ZSCORE', it.r, id)) then return nil end
    return id, call('HGET', it.n, id) ~= '0'
  end
  function runs.k(at)
    local it = group(ARGV[at])
    local id = owned(it, ARGV[at + 1])
    if not id then return {0} end
    begin()
    call('ZREM', it.r, id)
    acknowledge(ARGV[at], it, {id}, true)
    return {1}
  end
  local function hold_on(g, it, id, deadline)
    begin()
    call('ZADD', it.p, digits(deadline), id)
    touched(it, 'p')
    if deadline - now < SOON then told[g] = true end
    return {1}
  end
  function runs.W(at)
    local it, id = group(ARGV[at]), ARGV[at + 2]
    if not held(it, id, ARGV[at + 3]) then return {0} end
    return hold_on(ARGV[at], it, id, moment(ARGV[at + 1]))
  end
  function runs.w(at)
    local it = group(ARGV[at])
    local id, given = owned(it, ARGV[at + 2])
    if not given then return {0} end
    begin()
    call('ZREM', it.r, id)
    return hold_on(ARGV[at], it, id, moment(ARGV[at + 1]))
  end
  local function put_back(g, it, id)
    call('ZCARD', it.r)
    begin()
    call('ZREM', it.p, id)
    call('ZADD', it.r, digits(-stamp()), id)
    touched(it, 'r')
    told[g] = true
    return {1}
  end
  function runs.R(at)
    local it, id = group(ARGV[at]), ARGV[at + 1]
    if not held(it, id, ARGV[at + 2]) then return {0} end
    return put_back(ARGV[at], it, id)
  end
  function runs.r(at)
    local it = group(ARGV[at])
    local id, given = owned(it, ARGV[at + 1])
    if not given then return {0} end
    return put_back(ARGV[at], it, id)
  end
end
if find(kinds, '[FEXS]') then
  function runs.F()
    rare()
    remove()
    local gone = {ids, exp, body, own, names}
    for _, g in ipairs(all_groups()) do
      local it = group(g)
      for _, key in ipairs({it.p, it.r, it.n, it.f}) do insert(gone, key) end
    end
    for i = 1, #gone, 1000 do call('UNLINK', unpack(gone, i, math.min(i + 999, #gone))) end
    call('UNLINK', meta)
    call('HSET', meta, 'last', digits(last))
    groups, named, lasting, renew = {}, false, 0, true
    return {1}
  end
  function runs.E(at, n)
    begin()
    local alive = {}
    for i = 1, n do alive[2 * i - 1], alive[2 * i] = digits(now), ARGV[at + i - 1] end
    call('ZADD', consumers, unpack(alive))
    call('ZREMRANGEBYSCORE', consumers, '-inf', digits(now - STALE))
    call('PEXPIREAT', consumers, digits(math.ceil((now + STALE) / 1000)))
    return {1}
  end
  function runs.X(at, n)
    remove()
    call('ZREM', consumers, unpack(ARGV, at, at + n - 1))
    return {1}
  end
  function runs.S(at, n)
    rare()
    sweep(10000)
    local seen, wanted, answer = {}, {}, {call('ZCOUNT', exp, '(' .. digits(now), '+inf')}
    local alive = call('ZRANGEBYSCORE', consumers, '(' .. digits(now - STALE), '+inf')
    for i = 1, #alive do
      local g = sub(alive[i], 1, find(alive[i], ':', 1, true) - 1)
      seen[g] = (seen[g] or 0) + 1
    end
    if n > 0 then
      for i = 1, n do wanted[i] = ARGV[at + i - 1] end
    else
      local listed = {}
      for g in pairs(seen) do listed[g] = true end
      for _, g in ipairs(all_groups()) do listed[g] = true end
      for g in pairs(listed) do insert(wanted, g) end
    end
    for i = 1, #wanted do
      local it = group(wanted[i])
      local late = call('ZCOUNT', it.p, '-inf', digits(now))
      local rest = '(' .. digits(it.pointer)
      insert(answer, {wanted[i], call('ZCARD', it.p) - late, call('ZCARD', it.r) + late,
        call('ZCOUNT', ids, rest, '+inf') - call('ZCOUNT', it.f, rest, '+inf'),
        seen[wanted[i]] or 0})
    end
    return {answer}
  end
end
"""
