-- The lock has no waiters: decided before any other work, which takes longer than this.
local is_held = redis.call('GET', KEYS[1]) == ARGV[1]
if is_held and KEYS[2] and redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.call('DEL', KEYS[1])
end
