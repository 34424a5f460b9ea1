-- Ends leases. ARGV: time, layout, verb (ack, nack, back, late, dead), delay seconds, the number of handles, the handles,
-- then for verbs that change the body one body for each. Returns 1 for each settled handle, also for one that the same verb
-- has settled before, and 0 for a lost lease, whose message is not changed. `late` is `back` for a delivery that no
-- consumer has seen: the expiry of the lease before is still to be reported.
local q, layout, verb = KEYS[1], LAYOUTS[ARGV[2]], ARGV[3]
local delay, count = tonumber(ARGV[4]), tonumber(ARGV[5])
local settled, back = q .. ':babelgate:settled', verb == 'back' or verb == 'late'
layout.check(q)
-- Also the first write, which a server at maxmemory permits.
redis.call('ZREMRANGEBYSCORE', settled, '-inf', NOW)

local target, push = q, 'RPUSH'
if verb == 'dead' then
  target = q .. '.dlq'
elseif back then
  push = 'LPUSH'
end

local counts, outcomes, tombstones, ended, last = layout.counts(q), {}, {}, {}, now + TOMBSTONE
for step = 1, count do
  -- In reverse order to the head, so that the first message is the first again.
  local i = back and count + 1 - step or step
  local id, micros = parse(ARGV[5 + i])
  -- The deadline identifies the lease: in Laravel's layout equal jobs share an id.
  local tombstone = id and verb .. string.sub(id, 1, 16) .. ':' .. text(micros)
  local member, deadline, extended = locate(layout, q, id, micros)
  if member then
    local stored = layout.stored(member)
    layout.remove(q, member)
    if extended then
      redis.call('HDEL', q .. ':babelgate:extended', id)
    end
    if counts and not back then
      redis.call('DEL', layout.expired_key(q, stored))
    elseif counts and verb == 'back' and layout.expired_count(q, stored) > 0 then
      layout.set_expired(q, stored, -layout.expired_count(q, stored))
    end
    if verb ~= 'ack' then
      local body = ARGV[5 + count + i] or stored
      if delay > 0 then
        redis.call('ZADD', q .. layout.delayed, score(after(delay)), layout.delayed_member(id, body))
      else
        redis.call(push, target, body)
        if layout.notifies then
          redis.call('RPUSH', target .. ':notify', 1)
        end
      end
    end
    last = math.max(last, deadline)
    tombstones[#tombstones + 1] = score(math.max(deadline, now + TOMBSTONE))
    tombstones[#tombstones + 1] = tombstone
    ended[tombstone] = true
    outcomes[i] = 1
  else
    outcomes[i] = id and (ended[tombstone] or redis.call('ZSCORE', settled, tombstone)) and 1 or 0
  end
end

if #tombstones > 0 then
  spread(tombstones, 'ZADD', settled)
  -- For a minute more than needed, so that it is not set again by each call.
  local lasts = math.ceil((last - now) / 1000000)
  if redis.call('TTL', settled) < lasts then
    redis.call('EXPIRE', settled, lasts + 60)
  end
end
if delay > 0 then
  note(KEYS[2], layout, q)
end
return outcomes
