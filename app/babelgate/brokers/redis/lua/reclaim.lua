-- Returns elements of <q>:processing without a lease to the queue, after they have been seen there for ARGV[2] seconds.
-- Clients that only move elements leave them there. Such a return counts like an expired lease. <q>:babelgate:unleased has, by the element's SHA-1, the time when each
-- copy was first seen. Equal copies cannot be distinguished, so when one leaves, the oldest time is removed.
local q, patience = KEYS[1], tonumber(ARGV[2]) * 1000000
local seen = q .. ':babelgate:unleased'
list.check(q)
write_at_maxmemory(q .. list.leases)
local spare, elements = {}, {}
for _, element in ipairs(redis.call('LRANGE', q .. ':processing', 0, -1)) do
  spare[element] = (spare[element] or 0) + 1
end
for _, member in ipairs(redis.call('ZRANGE', q .. list.leases, 0, -1)) do
  local element = list.stored(member)
  if spare[element] then
    spare[element] = spare[element] - 1
  end
end
for element, copies in pairs(spare) do
  if copies > 0 then
    elements[redis.sha1hex(element)] = element
  end
end

local known = redis.call('HGETALL', seen)
local sightings = {}
for i = 1, #known, 2 do
  if elements[known[i]] then
    sightings[known[i]] = known[i + 1]
  else
    redis.call('HDEL', seen, known[i])
  end
end

local reclaimed = 0
for id, element in pairs(elements) do
  local moments = {}
  for moment in string.gmatch(sightings[id] or '', '%d+') do
    moments[#moments + 1] = moment
  end
  while #moments > spare[element] do
    table.remove(moments, 1)
  end
  while #moments < spare[element] do
    moments[#moments + 1] = text(now)
  end
  while moments[1] and tonumber(moments[1]) + patience <= now do
    redis.call('LREM', q .. ':processing', 1, element)
    list.expire(q, element)
    reclaimed = reclaimed + 1
    table.remove(moments, 1)
  end
  if #moments > 0 then
    redis.call('HSET', seen, id, table.concat(moments, ' '))
  else
    redis.call('HDEL', seen, id)
  end
end
return reclaimed
