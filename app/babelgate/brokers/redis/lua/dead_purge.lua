-- ARGV: time, layout, and the Unix milliseconds before which records are removed, or empty for all. Reads one batch from
-- the head, where the oldest are; returns the number removed. A record without a time, of another program, stays.
local q, layout, before, BATCH = KEYS[1], LAYOUTS[ARGV[2]], tonumber(ARGV[3]), 1000
local target = q .. '.dlq'
local removed = 0
if not before then
  removed = redis.call('LLEN', target)
  redis.call('UNLINK', target)
  if layout.notifies then
    redis.call('UNLINK', target .. ':notify')
  end
  return removed
end
for _, record in ipairs(redis.call('LRANGE', target, 0, BATCH - 1)) do
  -- The block is the last member of a record; inside a frame its quotes are escaped.
  local failed_at = tonumber(string.match(record, '.*"failed_at\\?":(%d+)') or nil)
  if failed_at and failed_at >= before then
    break
  end
  if failed_at then
    removed = removed + redis.call('LREM', target, 1, record)
    if layout.notifies then
      redis.call('LPOP', target .. ':notify')
    end
  end
end
return removed
