-- Idempotency keys. KEYS[1]: the ready list, for publish. ARGV: time, verb, layout, retention in ms, the most keys, then
--   publish: by message a field (queue:key, empty without a key), caller, fingerprint, answer, delay seconds and what to
--            write
--   reserve: the time of a reservation in ms, a token, then by key a field, a caller and a fingerprint
--   settle:  by key a field, a token, its resolution (done, unknown, free) and the answer
--   sweep:   the most keys to remove
-- publish and reserve return for each 1 (taken now), 0 (the store is full), {fingerprint, ms left of a reservation, the
-- answer of a settled key}, or {keys held, share, 0 for the caller's or 1 for one of a queue of the caller}; sweep returns
-- the number removed.
--
-- A record is <kept until: 13 digits><reserved until: 13 digits><fingerprint: 32><token: 8><mark: 8><answer>, times in ms;
-- the second is 0 for a settled key, and the answer is empty until then. The second key orders the fields by their end.
--
-- The third key counts the records of each caller under its mark, of each queue of the caller under mark and queue, and
-- all counted ones under `counted`. A mark is a digest of the caller and of `since`, the time when the counting began.
-- Versions without marks write others' bytes or zeros there, and remove records that are counted: when more are counted
-- than there are, the counting begins again, and the records from before count for no caller.
local RECORDS, ENDS, SHARES = 'babelgate:once', 'babelgate:once:ends', 'babelgate:once:shares'
local NO_TOKEN = string.rep('\0', 8)
local SWEPT_PER_CLAIM, SWEPT_WHEN_FULL = 2, 500
local q, verb, layout, ms = KEYS[1], ARGV[2], LAYOUTS[ARGV[3]], math.floor(now / 1000)
local ends, most = ms + tonumber(ARGV[4]), tonumber(ARGV[5])
local records, order, gained = {}, {}, {}
local since, begins

local function keep(field, fingerprint, until_ms, token, mark, answer)
  -- A reserved key is kept at least until its reservation ends, even when the retention is shorter.
  local last = math.max(ends, until_ms)
  records[#records + 1] = field
  records[#records + 1] = string.format('%013.0f%013.0f', last, until_ms) .. fingerprint .. token .. mark .. answer
  order[#order + 1] = string.format('%.0f', last)
  order[#order + 1] = field
end

local function queue_of(field)
  return string.match(field, '^[^:]*')
end

-- Notes one more or less of a caller's keys, of the queue `of_queue` (mark and queue).
local function note_change(changes, mark, of_queue, by)
  changes[mark] = (changes[mark] or 0) + by
  changes[of_queue] = (changes[of_queue] or 0) + by
  changes.counted = (changes.counted or 0) + by
end

local function change(changes, sign)
  for counter, by in pairs(changes) do
    if redis.call('HINCRBY', SHARES, counter, sign * by) < 1 then
      redis.call('HDEL', SHARES, counter)
    end
  end
end

local function count_gained()
  if begins and next(gained) then
    redis.call('HSET', SHARES, 'since', since)
  end
  change(gained, 1)
end

local function written()
  spread(order, 'ZADD', ENDS)
  spread(records, 'HSET', RECORDS)
end

local function remove(fields)
  spread(fields, 'HDEL', RECORDS)
  spread(fields, 'ZREM', ENDS)
end

local function forget(fields)
  local counted, lost = {}, {}
  for _, field in ipairs(fields) do
    local record = redis.call('HGET', RECORDS, field)
    local mark = record and string.sub(record, 67, 74)
    if mark and counted[mark] == nil then
      counted[mark] = redis.call('HEXISTS', SHARES, mark) == 1
    end
    if mark and counted[mark] then
      note_change(lost, mark, mark .. queue_of(field), -1)
    end
  end
  -- First, because a server without memory permits it, and then what follows.
  remove(fields)
  change(lost, 1)
  return #fields
end

local function sweep(limit)
  return forget(redis.call('ZRANGEBYSCORE', ENDS, '-inf', string.format('%.0f', ms), 'LIMIT', 0, limit))
end

local function found(record)
  return {string.sub(record, 27, 58), math.max(tonumber(string.sub(record, 14, 26)) - ms, 0), string.sub(record, 75)}
end

-- A function that gives the mark of a caller. It writes nothing where no key is new.
local function marks()
  local state, known = redis.call('HMGET', SHARES, 'since', 'counted'), {}
  since = state[1]
  if since and tonumber(state[2] or 0) > redis.call('HLEN', RECORDS) then
    redis.call('DEL', SHARES)
    since = nil
  end
  if not since then
    since, begins = text(now), true
  end
  return function(caller)
    if not known[caller] then
      local digest = string.sub(redis.sha1hex(since .. ':' .. caller), 1, 16)
      known[caller] = string.gsub(digest, '%x%x', function(byte)
        return string.char(tonumber(byte, 16))
      end)
    end
    return known[caller]
  end
end

-- The most of one holder of `space`; the same as share_of in Python.
local function share_of(space)
  return math.max(math.floor(space * 3 / 4), 1)
end

-- Decides on the claims, and collects what is to be written. `stored`: the records of their fields.
local function decide(first, step, under_way, token, stored, mark_of)
  records, order, gained = {}, {}, {}
  local total, held, results, fresh, refused = redis.call('HLEN', RECORDS), {}, {}, {}, false
  local function holds(counter)
    if not held[counter] then
      held[counter] = tonumber(redis.call('HGET', SHARES, counter) or 0)
    end
    return held[counter]
  end
  for i = first, #ARGV, step do
    local field, fingerprint = ARGV[i], ARGV[i + 2]
    local result = 1
    if field ~= '' then
      if fresh[field] then
        result = fresh[field]
      elseif stored[field] then
        result = found(stored[field])
      else
        local mine = mark_of(ARGV[i + 1])
        local of_queue = mine .. queue_of(field)
        local share = share_of(most - (total - holds(mine)))
        local queue_share = share_of(share - (holds(mine) - holds(of_queue)))
        if total >= most then
          result = 0
        elseif holds(mine) >= share then
          result = {holds(mine), share, 0}
        elseif holds(of_queue) >= queue_share then
          result = {holds(of_queue), queue_share, 1}
        else
          local answer = token and '' or ARGV[i + 3]
          keep(field, fingerprint, token and ms + under_way or 0, token or NO_TOKEN, mine, answer)
          note_change(gained, mine, of_queue, 1)
          fresh[field] = {fingerprint, under_way, answer}
          total, held[mine], held[of_queue] = total + 1, held[mine] + 1, held[of_queue] + 1
        end
        refused = refused or result ~= 1
      end
    end
    results[#results + 1] = result
  end
  return results, refused
end

-- Takes the free keys. Their fields are at `first` in ARGV and every `step` after it.
local function take(first, step, under_way, token)
  local claims = (#ARGV + 1 - first) / step
  local swept = sweep(claims * SWEPT_PER_CLAIM)
  local stored, expired = {}, {}
  for i = first, #ARGV, step do
    local field = ARGV[i]
    local record = field ~= '' and stored[field] == nil and redis.call('HGET', RECORDS, field)
    if record then
      stored[field] = tonumber(string.sub(record, 1, 13)) > ms and record
      if not stored[field] then
        expired[#expired + 1] = field
      end
    end
  end
  forget(expired)
  local mark_of = marks()
  local results, refused = decide(first, step, under_way, token, stored, mark_of)
  if refused and swept == claims * SWEPT_PER_CLAIM then
    sweep(SWEPT_WHEN_FULL)
    results = decide(first, step, under_way, token, stored, mark_of)
  end
  return results
end

-- Fails on a key of a wrong type before the first write: a script has no rollback.
redis.call('HLEN', RECORDS)
redis.call('ZCARD', ENDS)
redis.call('HLEN', SHARES)

if verb == 'publish' then
  layout.check(q)
  local results = take(6, 6, 0)
  local ready, delayed, tokens, taken = {}, {}, {}, {}
  for i, result in ipairs(results) do
    local field, delay, element = ARGV[6 * i], ARGV[6 * i + 4], ARGV[6 * i + 5]
    if result == 1 and field ~= '' then
      taken[#taken + 1] = field
    end
    if result == 1 and tonumber(delay) > 0 then
      delayed[#delayed + 1] = score(after(delay))
      delayed[#delayed + 1] = element
    elseif result == 1 then
      ready[#ready + 1] = element
      tokens[#tokens + 1] = 1
    end
  end
  count_gained()
  local sound, failure = pcall(function()
    written()
    spread(ready, 'RPUSH', q)
    if layout.notifies then
      spread(tokens, 'RPUSH', q .. ':notify')
    end
    spread(delayed, 'ZADD', q .. layout.delayed)
  end)
  if not sound then
    -- An access list permits writing the key but not the message: no key may stay without its message.
    remove(taken)
    change(gained, -1)
    return redis.error_reply(failure)
  end
  if #delayed > 0 then
    note(KEYS[2], layout, q)
  end
  return results
end

if verb == 'reserve' then
  local results = take(8, 3, tonumber(ARGV[6]), ARGV[7])
  count_gained()
  written()
  return results
end

if verb == 'settle' then
  write_at_maxmemory(ENDS)
  for i = 6, #ARGV, 4 do
    local field, token, resolution = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local record = redis.call('HGET', RECORDS, field)
    if record and string.sub(record, 59, 66) == token then
      if resolution == 'free' then
        forget({field})
      elseif resolution == 'done' then
        keep(field, string.sub(record, 27, 58), 0, NO_TOKEN, string.sub(record, 67, 74), ARGV[i + 3])
      else
        redis.call('HSET', RECORDS, field, string.sub(record, 1, 13) .. string.rep('0', 13) .. string.sub(record, 27))
      end
    end
  end
  written()
  return 1
end

return sweep(tonumber(ARGV[6]))
