-- KEYS: lock, fence, held, queue, revoke, places, news, of one lock after the other.
-- ARGV: value, TTL in ms, id, of one lock after the other.
-- All granted: {1, token, …}. Refused because of the n-th: {0, n, ms until the obstacle ends by itself (negative: unknown), remaining
-- TTL in ms (negative: for ever), value of the holder or nil}. Another type of value lies under the n-th key: {-1, n}. No claim gets a
-- place in a queue.
local micros = clock()
local now = math.floor(micros / 1000)
local locks = {}

for n = 1, #ARGV / 3 do
  local key, arg = 7 * n - 7, 3 * n - 3
  local lock = {
    name = KEYS[key + 1], fence = KEYS[key + 2], queue = KEYS[key + 4], revoke = KEYS[key + 5], places = KEYS[key + 6],
    value = ARGV[arg + 1], ttl = ARGV[arg + 2], id = ARGV[arg + 3],
  }
  locks[n] = lock
  local held = redis.pcall('GET', lock.name)
  if type(held) == 'table' then
    if string.find(held.err, 'WRONGTYPE', 1, true) then
      return {-1, n}
    end
    -- Any other failure, raised as every version words it.
    redis.call('GET', lock.name)
  end
  lock.again = held == lock.value
  if held and not lock.again then
    local left = redis.call('PTTL', lock.name)
    return {0, n, left, left, string.sub(held, 1, 512)}
  end
  if not held and redis.call('EXISTS', KEYS[key + 3], lock.queue) > 0 then
    if last_end(KEYS[key + 3], now) then
      return {-1, n}
    end
    local rank = place_of(lock.queue, lock.places, lock.id, now)
    local wanted, first = wanted_before(lock.queue, lock.places, rank, 0, now)
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
-- Commands that may be forbidden come before the first lock is stored.
for _, lock in ipairs(locks) do
  if not lock.again then
    -- A new holder has no request to revoke.
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
  -- Read after the write, so that the server tells this connection when anybody changes the key.
  redis.call('GET', lock.name)
end
return reply
