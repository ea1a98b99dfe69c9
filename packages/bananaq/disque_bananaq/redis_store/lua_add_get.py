"""The Lua for adding and delivering events; ``lua`` describes its context and data.

Owns functions ``runs.<code>(at, n)``: a run of ``n`` operations of one kind, whose arguments begin
at ``ARGV[at]``. Each returns a list of answers, one for each operation, or the text of an error for
all of them.
"""

ADD_GET = r"""
-- Before the first addition: make sure that nothing it touches has the wrong type.
local function check()
  if checked then return end
  local found = call('ZCARD', ids) * call('HLEN', body)
  checked = true
  if found == 0 then renew = true end
end
local function touched(it, key)
  if not it.touched then it.touched = {} end
  it.touched[key] = true
end
if adds then
  function runs.A(at, n)
    if full then return full end
    check()
    local by_id, by_end, bodies, answers, longest, count = {}, {}, {}, {}, 0, 0
    local spec, ends, until_then, text
    if now > last then last = now - 1 end
    stamped = true
    for i = 1, n do
      if ARGV[at] ~= spec then
        spec = ARGV[at]
        ends = moment(spec)
        until_then = digits(ends)
        text = '_' .. until_then
      end
      last = last + 1
      local id = fmt('%.0f%s', last, text)
      answers[i] = id
      if ends > now then
        count = count + 2
        by_id[count - 1], by_id[count] = sub(id, 1, -1 - #text), id
        by_end[count - 1], by_end[count] = until_then, id
        bodies[count - 1], bodies[count] = id, ARGV[at + 1]
        if ends > longest then longest = ends end
      end
      at = at + 2
    end
    if count > 0 then
      if begun then
        call('ZADD', ids, unpack(by_id))
      else
        -- The first write of the script: the one that Redis may refuse.
        local added = redis.pcall('ZADD', ids, unpack(by_id))
        if type(added) == 'table' then
          if not find(added.err, 'OOM', 1, true) then error(added.err, 0) end
          full = added.err
          call('DEL', base .. ':nothing')
          begun = true
          return full
        end
      end
      call('ZADD', exp, unpack(by_end))
      call('HSET', body, unpack(bodies))
      if longest + GRACE > lasting then
        rare()
        keep(longest)
      end
      begun, news = true, true
    end
    return answers
  end
  function runs.a(at)
    if full then return full end
    local ends, text, chosen, g, front = moment(ARGV[at]), unpack(ARGV, at + 1, at + 4)
    local holder = call('HGET', own, chosen)
    call('HLEN', names)
    if holder then
      local held = sub(holder, 1, find(holder, ':', 1, true) - 1)
      local _, until_then = parts(held)
      if until_then > now and call('HEXISTS', body, held) == 1 then return {0} end
    end
    check()
    begin()
    if full then return full end
    local it = group(g)
    if front == '1' then call('ZCARD', it.r) call('HLEN', it.n) call('ZCARD', it.f) end
    local t = stamp()
    local id = digits(t) .. '_' .. digits(ends)
    if ends <= now then return {id} end
    call('ZADD', ids, digits(t), id)
    call('ZADD', exp, digits(ends), id)
    call('HSET', body, id, text)
    call('HSET', own, chosen, id .. ':' .. g)
    call('HSET', names, id, chosen)
    if not named then call('HSET', meta, 'owned', 1) end
    named = true
    if front == '1' then
      call('ZADD', it.r, digits(-t), id)
      call('HSET', it.n, id, 0)
      call('ZADD', it.f, digits(t), id)
      touched(it, 'r') touched(it, 'n') touched(it, 'f')
      call('HSET', meta, 'f:' .. g, 1)
      it.fronts = true
      exist(g, it)
    end
    rare()
    keep(ends)
    touch(own, names)
    news = true
    return {id}
  end
end
if find(kinds, '[GNL]') then
  -- Ids with a missed deadline are to be delivered again; expired ones are no longer in progress.
  -- Returns the next deadline, or 0.
  local function overdue(it)
    for _ = 1, 10 do
      local first = call('ZRANGE', it.p, 0, 0, 'WITHSCORES')
      it.holds = #first > 0
      if not it.holds then return 0 end
      local _, ends = parts(first[1])
      local deadline = tonumber(first[2])
      if deadline > now and ends > now then return deadline end
      local held, over, back = call('ZRANGE', it.p, 0, 99, 'WITHSCORES'), {}, {}
      call('ZCARD', it.r)
      for i = 1, #held, 2 do
        local t, ends_then = parts(held[i])
        local late, lives = tonumber(held[i + 1]) <= now, ends_then > now
        if late or not lives then insert(over, held[i]) end
        if late and lives then insert(back, digits(t)) insert(back, held[i]) end
      end
      begin()
      call('ZREM', it.p, unpack(over))
      if #back > 0 then
        call('ZADD', it.r, unpack(back))
        touched(it, 'r')
      end
    end
    return now
  end
  -- Choose what the group gets next: {id, number of the delivery, body}, at most n. Remove ids that
  -- no longer exist. peek: take nothing.
  local function choose(it, n, peek)
    local found = {}
    local function see(chunk, redo)
      local bodies = call('HMGET', body, unpack(chunk))
      local numbers = redo and call('HMGET', it.n, unpack(chunk))
      local gone = {}
      if not peek and (redo or it.fronts) then begin() end
      for i = 1, #chunk do
        local t, ends = parts(chunk[i])
        local lives = ends > now and bodies[i]
        local skipped = false
        if not redo and lives and it.fronts then
          skipped = call('ZSCORE', it.f, chunk[i])
          if skipped and not peek then call('ZREM', it.f, chunk[i]) end
        end
        if lives and not skipped then
          if bytes > MOST then break end
          bytes = bytes + #bodies[i]
          insert(found, {chunk[i], redo and tonumber(numbers[i] or '1') + 1 or 1, bodies[i], redo})
        elseif not lives and not bodies[i] then
          insert(gone, chunk[i])
        end
        if redo then
          if not peek then call('ZREM', it.r, chunk[i]) end
        else
          it.seen = t
        end
      end
      if #gone > 0 then
        rare()
        forget(gone)
      end
    end
    local from = 0
    while #found < n and bytes <= MOST do
      local chunk = call('ZRANGE', it.r, from, from + math.min(n - #found, 64) - 1)
      if #chunk == 0 then break end
      see(chunk, true)
      if peek then from = from + #chunk end
    end
    it.seen = it.pointer
    while #found < n and bytes <= MOST do
      local chunk = call('ZRANGEBYSCORE', ids, '(' .. digits(it.seen), '+inf', 'LIMIT', 0,
                         math.min(n - #found, 64))
      if #chunk == 0 then break end
      see(chunk, false)
    end
    return found
  end
  local function event(id, number, text)
    local chosen = named and call('HGET', names, id) or ''
    if number > 1 then id = id .. '_' .. number end
    return {id, chosen, text}
  end
  -- Put ids in progress; held: deadline, id...
  local function take(it, held)
    if adds then begin() end
    if begun then
      call('ZADD', it.p, unpack(held))
    else
      local added = redis.pcall('ZADD', it.p, unpack(held))
      if type(added) == 'table' then
        if not find(added.err, 'OOM', 1, true) then error(added.err, 0) end
        begin()
        call('ZADD', it.p, unpack(held))
      end
      begun = true
    end
    if not it.holds then touched(it, 'p') end
    it.holds = true
  end
  function runs.G(at, n)
    local g, hold = ARGV[at], ARGV[at + 1]
    local it, deadline = group(g), hold ~= '0' and moment(hold)
    local next_due = overdue(it)
    local found, answers, held, again, first, done = choose(it, n), {}, {}, {}, {}, {}
    local count, until_then = #found, deadline and digits(deadline)
    for i = 1, count do
      local one = found[i]
      local id, number = one[1], one[2]
      done[i] = id
      held[2 * i - 1], held[2 * i] = until_then, id
      answers[i] = event(id, number, one[3])
      if number > 1 then insert(again, id) insert(again, number)
      elseif one[4] then insert(first, id) end
    end
    if count > 0 then
      if deadline then
        take(it, held)
        if #again > 0 then call('HSET', it.n, unpack(again)) touched(it, 'n') end
        if deadline - now < SOON then told[g] = true end
        if next_due == 0 or deadline < next_due then next_due = deadline end
      else
        begin()
        if #again > 0 then call('HDEL', it.n, unpack(done)) end
        if named then rare() unown(g, done) end
      end
      if #first > 0 then call('HDEL', it.n, unpack(first)) end
      exist(g, it)
    end
    if it.exists and it.seen > it.pointer then
      begin()
      it.pointer, it.moved = it.seen, true
    end
    if count < n then
      idle = true
      local nothing = bytes > MOST and -1 or {next_due, now}
      for i = count + 1, n do answers[i] = nothing end
    end
    return answers
  end
  function runs.N(at)
    local it = group(ARGV[at])
    local next_due = overdue(it)
    local found = choose(it, 1, true)[1]
    if not found then idle = true end
    return {found and event(found[1], found[2], found[3]) or {next_due, now}}
  end
  function runs.L()
    local from = 0
    while true do
      local chunk = call('ZREVRANGE', ids, from, from + 31)
      if #chunk == 0 then return {0} end
      for i = 1, #chunk do
        local _, ends = parts(chunk[i])
        local text = ends > now and call('HGET', body, chunk[i])
        if text then bytes = bytes + #text return {event(chunk[i], 1, text)} end
      end
      from = from + 32
    end
  end
end
"""
