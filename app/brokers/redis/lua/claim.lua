-- Idempotency keys. KEYS[1]: the ready list, for publish. ARGV: time, verb, layout, retention in ms, the most keys, then
--   publish: by message a field (queue:key, empty without a key), fingerprint, answer, delay seconds and what to write
--   reserve: the time of a reservation in ms, a token, then by key a field and a fingerprint
--   settle:  by key a field, a token, its resolution (done, unknown, free) and the answer
--   sweep:   the most keys to remove
-- publish and reserve return for each 1 (taken now), 0 (the store is full), or {fingerprint, ms left of a reservation,
-- the answer of a settled key}; sweep returns the number removed.
--
-- A record is <kept until: 13 digits><reserved until: 13 digits><fingerprint: 32><token: 16><answer>, times in ms; the
-- second is 0 for a settled key, and the answer is empty until then. The second key orders the fields by their end.
local RECORDS, ENDS = 'babelgate:once', 'babelgate:once:ends'
local NO_TOKEN = string.rep('\0', 16)
local SWEPT_PER_CLAIM, SWEPT_WHEN_FULL = 2, 500
local q, verb, layout, ms = KEYS[1], ARGV[2], LAYOUTS[ARGV[3]], math.floor(now / 1000)
local ends, most = ms + tonumber(ARGV[4]), tonumber(ARGV[5])
local records, order = {}, {}

local function keep(field, fingerprint, until_ms, token, answer)
  -- A reserved key is kept at least until its reservation ends, even when the retention is shorter.
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

-- Takes the free keys. Their fields are at `first` in ARGV and every `step` after it.
local function take(first, step, under_way, token)
  local count = (#ARGV + 1 - first) / step
  local swept = sweep(count * SWEPT_PER_CLAIM)
  local free = most - redis.call('HLEN', RECORDS)
  if free < count and swept == count * SWEPT_PER_CLAIM then
    free = free + sweep(SWEPT_WHEN_FULL)
  end
  local results, fresh = {}, {}
  for i = first, #ARGV, step do
    local field, fingerprint = ARGV[i], ARGV[i + 1]
    local result = 1
    if field ~= '' then
      local record = not fresh[field] and redis.call('HGET', RECORDS, field)
      if fresh[field] then
        result = fresh[field]
      elseif record and tonumber(string.sub(record, 1, 13)) > ms then
        result = found(record)
      elseif free < 1 then
        result = 0
      else
        local answer = token and '' or ARGV[i + 2]
        keep(field, fingerprint, token and ms + under_way or 0, token or NO_TOKEN, answer)
        fresh[field] = {fingerprint, under_way, answer}
        free = free - (record and 0 or 1)
      end
    end
    results[#results + 1] = result
  end
  return results
end

-- Fails on a key of a wrong type before the first write: a script has no rollback.
redis.call('HLEN', RECORDS)
redis.call('ZCARD', ENDS)

if verb == 'publish' then
  layout.check(q)
  local results = take(6, 5, 0)
  local ready, delayed, tokens, taken = {}, {}, {}, {}
  for i, result in ipairs(results) do
    local field, delay, element = ARGV[5 * i + 1], ARGV[5 * i + 4], ARGV[5 * i + 5]
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
    forget(taken)
    return redis.error_reply(failure)
  end
  if #delayed > 0 then
    note(KEYS[2], layout, q)
  end
  return results
end

if verb == 'reserve' then
  local results = take(8, 2, tonumber(ARGV[6]), ARGV[7])
  written()
  return results
end

if verb == 'settle' then
  for i = 6, #ARGV, 4 do
    local field, token, resolution = ARGV[i], ARGV[i + 1], ARGV[i + 2]
    local record = redis.call('HGET', RECORDS, field)
    if record and string.sub(record, 59, 74) == token then
      if resolution == 'free' then
        forget({field})
      elseif resolution == 'done' then
        keep(field, string.sub(record, 27, 58), 0, NO_TOKEN, ARGV[i + 3])
      else
        redis.call('HSET', RECORDS, field, string.sub(record, 1, 13) .. string.rep('0', 13) .. string.sub(record, 27))
      end
    end
  end
  written()
  return 1
end

return sweep(tonumber(ARGV[6]))
