-- Acquires several mutexes, all or none. No claim gets a queue entry.
--
-- KEYS  for each lock: lock, fence, held, queue, revoke, places, news
-- ARGV  for each lock: value, TTL in ms, id
-- Returns  all granted: {1, token, …}; refused because of the n-th lock: {0, n, ms until the
--          obstacle expires (negative: unknown), remaining TTL in ms (negative: no TTL), value of
--          the holder or nil}; the n-th key has a value of another type: {-1, n}

--- @include "token"
--- @include "queue"
--- @include "units"
local micros = clock()
local now = math.floor(micros / 1000)
local locks = {}

for n = 1, #ARGV / 3 do
  local name, fence, held, queue, revoke, places = unpack(KEYS, 7 * n - 6, 7 * n - 1)
  local value, ttl, id = unpack(ARGV, 3 * n - 2, 3 * n)
  local lock = { name = name, fence = fence, queue = queue, revoke = revoke, places = places, value = value, ttl = ttl, id = id }
  locks[n] = lock
  local holder = redis.pcall('GET', name)
  if type(holder) == 'table' then
    if string.find(holder.err, 'WRONGTYPE', 1, true) then
      return {-1, n}
    end
    -- Raises any other error in the words of the server's version.
    redis.call('GET', name)
  end
  lock.again = holder == value
  if holder and not lock.again then
    local left = redis.call('PTTL', name)
    return {0, n, left, left, string.sub(holder, 1, 512)}
  end
  if not holder and redis.call('EXISTS', held, queue) > 0 then
    if last_end(held, now) then
      return {-1, n}
    end
    local rank = place_of(queue, places, id, now)
    local wanted, first = wanted_before(queue, places, rank, 0, now)
    if wanted > 0 then
      return {0, n, first or -1, -1, false}
    end
    lock.queued = true
  end
end

local reply = {1}
for _, lock in ipairs(locks) do
  local token, failure = number_grant(lock.fence, micros, 0)
  if not token then
    return failure
  end
  reply[#reply + 1] = token
end
-- Commands that may be forbidden run before the first lock is stored.
for _, lock in ipairs(locks) do
  if not lock.again then
    -- A revocation request does not apply to a new holder.
    redis.call('DEL', lock.revoke)
  end
  if lock.queued then
    forget(lock.queue, lock.places, {lock.id})
  end
end
for _, lock in ipairs(locks) do
  redis.call('SET', lock.name, lock.value, 'PX', lock.ttl)
end
for _, lock in ipairs(locks) do
  -- Read after the write, so that the server notifies this connection when another client changes
  -- the key.
  redis.call('GET', lock.name)
end
return reply
