-- KEYS: lock. ARGV: value.
-- 1: released. 0: this lock does not lie under the key.
-- Uses no command that fails when memory is full.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
