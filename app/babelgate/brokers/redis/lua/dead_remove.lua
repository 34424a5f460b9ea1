-- ARGV: time, layout, records. Removes one copy of each; returns 1 for each record that existed.
local target, layout, removed = KEYS[1] .. '.dlq', LAYOUTS[ARGV[2]], {}
for i = 3, #ARGV do
  removed[i - 2] = redis.call('LREM', target, 1, ARGV[i])
  if layout.notifies and removed[i - 2] == 1 then
    redis.call('LPOP', target .. ':notify')
  end
end
return removed
