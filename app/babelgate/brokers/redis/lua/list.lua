-- The list layout: <q>, <q>:processing, and leases in <q>:processing:deadlines as <32 hex>:<element>.

local list = {
  name = 'list',
  leases = ':processing:deadlines',
  delayed = ':babelgate:delayed',
  notifies = false,
}

function list.stored(member)
  return string.sub(member, 34)
end

function list.delayed_member(id, body)
  return id .. ':' .. body
end

-- Fails on a key of a wrong type before the first write: a script has no rollback.
function list.check(q)
  redis.call('LLEN', q)
  redis.call('LLEN', q .. ':processing')
  redis.call('LLEN', q .. '.dlq')
  redis.call('ZCARD', q .. list.leases)
  redis.call('ZCARD', q .. list.delayed)
end

function list.find(q, id, micros)
  local at = score(micros)
  local prefix = id .. ':'
  for _, member in ipairs(redis.call('ZRANGEBYSCORE', q .. list.leases, at, at)) do
    if string.sub(member, 1, 33) == prefix then
      return member
    end
  end
  return false
end

function list.remove(q, member)
  redis.call('ZREM', q .. list.leases, member)
  redis.call('LREM', q .. ':processing', 1, list.stored(member))
end

-- The element without the digits of its attempts, which an SDK raises when it gives the message back. They are at the end
-- of an envelope in the contract's order and of a frame around it; any other element is returned whole.
local function lasting(element)
  local tail = string.sub(element, -48)
  local before, rest = string.match(tail, '^(.*"attempts\\?":)%d+(}"?}?)$')
  return before and string.sub(element, 1, #element - #tail) .. before .. rest or element
end

-- The number of expired leases of this message. It is negative after a process has reported the last expiry and has given
-- the element back. The bare key shows whether the queue has any count.
function list.expired_key(q, element)
  return q .. ':babelgate:expired:' .. redis.sha1hex(lasting(element))
end

function list.expired_count(q, element)
  return tonumber(redis.call('GET', list.expired_key(q, element)) or 0)
end

function list.set_expired(q, element, count)
  redis.call('SET', list.expired_key(q, element), text(count), 'EX', COUNT_SECONDS)
end

function list.counts(q)
  return redis.call('EXISTS', q .. ':babelgate:expired') == 1
end

-- Appends an element whose consumer has gone to the queue, and counts that.
function list.expire(q, element)
  redis.call('RPUSH', q, element)
  list.set_expired(q, element, math.abs(list.expired_count(q, element)) + 1)
  redis.call('SET', q .. ':babelgate:expired', 1, 'EX', COUNT_SECONDS)
end

function list.promote(q, batch)
  local due = redis.call('ZRANGEBYSCORE', q .. list.delayed, '-inf', NOW, 'LIMIT', 0, batch)
  for _, member in ipairs(due) do
    redis.call('RPUSH', q, list.stored(member))
    redis.call('ZREM', q .. list.delayed, member)
  end
  return #due
end

-- Moves the elements of expired leases, unchanged, to the end of the queue. A member that is no lease, or whose element
-- is missing in <q>:processing, is only removed.
function list.sweep(q, batch)
  local expired = redis.call('ZRANGEBYSCORE', q .. list.leases, '-inf', NOW, 'LIMIT', 0, batch)
  local extended = #expired > 0 and redis.call('EXISTS', q .. ':babelgate:extended') == 1
  for _, member in ipairs(expired) do
    if #member >= 34 and string.byte(member, 33) == 58 then
      local element = list.stored(member)
      if redis.call('LREM', q .. ':processing', 1, element) == 1 then
        list.expire(q, element)
      end
      if extended then
        redis.call('HDEL', q .. ':babelgate:extended', string.sub(member, 1, 32))
      end
    end
    redis.call('ZREM', q .. list.leases, member)
  end
  return #expired
end
