-- ARGV: time, layout, then pairs of delay seconds and delayed member.
local layout, members = LAYOUTS[ARGV[2]], {}
for i = 3, #ARGV, 2 do
  members[i - 2] = score(after(ARGV[i]))
  members[i - 1] = ARGV[i + 1]
end
spread(members, 'ZADD', KEYS[1] .. layout.delayed)
note(KEYS[2], layout, KEYS[1])
return #members / 2
