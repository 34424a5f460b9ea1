-- Idempotency keys. KEYS[1]: the ready list, for publish. ARGV: time, verb, layout, retention in ms, the most keys, then
--   publish: by message a field (queue:key, empty without a key), fingerprint, answer, delay seconds and what to write
--   reserve: how long in ms, a token, then by key a field and a fingerprint
--   settle:  by key a field, a token, what became of it (done, unknown, free) and the answer
--   sweep:   how many at most
-- publish and reserve return for each 1 (taken now), 0 (no room), or {fingerprint, ms left of a reservation, the answer of
-- one that is done}; sweep the number removed.
--
-- A record is <until when kept: 13 digits><until when under way: 13 digits><fingerprint: 32><token: 16><answer>, in ms,
-- under way 0 when it is not; the answer is empty until it is done. The second key orders the fields by when they end.
local RECORDS, ENDS = 'babelgate:once', 'babelgate:once:ends'
local NOBODY = string.rep('\0', 16)
local SWEPT_PER_CLAIM, SWEPT_WHEN_FULL = 2, 500
local q, verb, layout, ms = KEYS[1], ARGV[2], LAYOUTS[ARGV[3]], math.floor(now / 1000)
local ends, most = ms + tonumber(ARGV[4]), tonumber(ARGV[5])
local records, order = {}, {}

local function keep(field, fingerprint, until_ms, token, answer)
  -- What is under way is kept for as long as it is, however short the retention.
  local last = math.max(ends, until_ms)
  records[#records + 1] = field
  records[#records + 1] = string.format('%013.0f%013.0f', last, until_ms) .. fingerprint .. token .. answer
  order[#order + 1] = string.format('%.0f', last)
  order[#order + 1] = field
end

local function written()
  spread(order, 'ZADD', ENDS)
  spread(records, 'HSET', RECORDS)
end

local function forget(fields)
  spread(fields, 'HDEL', RECORDS)
  spread(fields, 'ZREM', ENDS)
  return #fields
end

local function sweep(limit)
  return forget(redis.call('ZRANGEBYSCORE', ENDS, '-inf', string.format('%.0f', ms), 'LIMIT', 0, limit))
end

local function found(record)
  return {string.sub(record, 27, 58), math.max(tonumber(string.sub(record, 14, 26)) - ms, 0), string.sub(record, 75)}
end

-- Takes the keys that are free; `first` and `step` say where in ARGV their fields stand.
local function take(first, step, under_way, token)
  local count = (#ARGV + 1 - first) / step
  local swept = sweep(count * SWEPT_PER_CLAIM)
  local room = most - redis.call('HLEN', RECORDS)
  if room < count and swept == count * SWEPT_PER_CLAIM then
    room = room + sweep(SWEPT_WHEN_FULL)
  end
  local verdicts, fresh = {}, {}
  for i = first, #ARGV, step do
    local field, fingerprint = ARGV[i], ARGV[i + 1]
    local verdict = 1
    if field ~= '' then
      local record = not fresh[field] and redis.call('HGET', RECORDS, field)
      if fresh[field] then
        verdict = fresh[field]
      elseif record and tonumber(string.sub(record, 1, 13)) > ms then
        verdict = found(record)
      elseif room < 1 then
        verdict = 0
      else
        local answer = token and '' or ARGV[i + 2]
        keep(field, fingerprint, token and ms + under_way or 0, token or NOBODY, answer)
        fresh[field] = {fingerprint, under_way, answer}
        room = room - (record and 0 or 1)
      end
    end
    verdicts[#verdicts + 1] = verdict
  end
  return verdicts
end

-- Fails on a key of a wrong type now, before anything is written: a script has no rollback.
redis.call('HLEN', RECORDS)
redis.call('ZCARD', ENDS)

if verb == 'publish' then
  layout.check(q)
  local verdicts = take(6, 5, 0)
  local ready, delayed, tokens, taken = {}, {}, {}, {}
  for i, verdict in ipairs(verdicts) do
    local field, delay, element = ARGV[5 * i + 1], ARGV[5 * i + 4], ARGV[5 * i + 5]
    if verdict == 1 and field ~= '' then
      taken[#taken + 1] = field
    end
    if verdict == 1 and tonumber(delay) > 0 then
      delayed[#delayed + 1] = score(after(delay))
      delayed[#delayed + 1] = element
    elseif verdict == 1 then
      ready[#ready + 1] = element
      tokens[#tokens + 1] = 1
    end
  end
  local sound, failure = pcall(function()
    written()
    spread(ready, 'RPUSH', q)
    if layout.notifies then
      spread(tokens, 'RPUSH', q .. ':notify')
    end
    spread(delayed, 'ZADD', q .. layout.delayed)
  end)
  if not sound then
    -- An access list lets the one be written and not the other: without its message no key may stay.
    forget(taken)
    return redis.error_reply(failure)
  end
  if #delayed > 0 then
    note(KEYS[2], layout, q)
  end
  return verdicts
end

if verb == 'reserve' then
  local verdicts = take(8, 2, tonumber(ARGV[6]), ARGV[7])
  written()
  return verdicts
end

if verb == 'settle' then
  for i = 6, #ARGV, 4 do
    local field, token, fate = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local record = redis.call('HGET', RECORDS, field)
    if record and string.sub(record, 59, 74) == token then
      if fate == 'free' then
        forget({field})
      elseif fate == 'done' then
        keep(field, string.sub(record, 27, 58), 0, NOBODY, ARGV[i + 3])
      else
        redis.call('HSET', RECORDS, field, string.sub(record, 1, 13) .. string.rep('0', 13) .. string.sub(record, 27))
      end
    end
  end
  written()
  return 1
end

return sweep(tonumber(ARGV[6]))
