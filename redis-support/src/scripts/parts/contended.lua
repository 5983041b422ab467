--- @include "time"

-- The set `contended` contains the locks with a queue, permits or a revocation request, each until
-- the last of these expires. The scripts for many locks leave these locks alone, so every script
-- marks a lock before it creates any of these. If a mark exists for too long, the only cost is a
-- separate script for the lock.
local function mark(contended, lock, ends, now)
  if redis.call('ZADD', contended, 'GT', digits(ends), lock) == 1 then
    local gone = redis.call('ZRANGEBYSCORE', contended, '-inf', digits(now), 'LIMIT', 0, 128)
    if gone[1] then
      redis.call('ZREM', contended, unpack(gone))
    end
  end
  if redis.call('PTTL', contended) < ends - now then
    -- The expiry is longer than necessary, so that it does not have to be set each time.
    redis.call('PEXPIRE', contended, digits(2 * (ends - now)))
  end
end
