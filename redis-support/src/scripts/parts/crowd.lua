--- @include "time"

-- The crowd names the locks that have a queue, units or a request to revoke them, each until the last of those ends. The scripts for many
-- locks leave these locks alone, so every script marks a lock before it gives it any of them. A mark that outlasts them costs a script for
-- one lock.
local function mark(crowd, lock, ends, now)
  if redis.call('ZADD', crowd, 'GT', digits(ends), lock) == 1 then
    local gone = redis.call('ZRANGEBYSCORE', crowd, '-inf', digits(now), 'LIMIT', 0, 128)
    if gone[1] then
      redis.call('ZREM', crowd, unpack(gone))
    end
  end
  if redis.call('PTTL', crowd) < ends - now then
    -- For longer than it must be, so that this is not done each time.
    redis.call('PEXPIRE', crowd, digits(2 * (ends - now)))
  end
end
