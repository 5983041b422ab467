-- KEYS: lock, and, if they are at hand: revoke. ARGV: value, TTL in ms.
-- 1: renewed. 2: renewed, and its holder is asked to finish. 0: no lock lies under the key. -1: another one does.
-- Uses no command that fails when memory is full.
local held = redis.call('GET', KEYS[1])
if held ~= ARGV[1] then
  return held and -1 or 0
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
-- Read after the write, so that the server tells this connection when anybody changes the key.
redis.call('GET', KEYS[1])
return KEYS[2] and redis.call('GET', KEYS[2]) == held and 2 or 1
