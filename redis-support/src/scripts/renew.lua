-- Renews a mutex.
--
-- KEYS  lock; optionally: revoke
-- ARGV  value, TTL in ms
-- Returns  1: renewed; 2: renewed, and the holder is asked to finish; 0: the key does not exist;
--          -1: the key contains another lock
local lock, revoke = unpack(KEYS)
local value, ttl = unpack(ARGV)
--- @include "renew_mutex"
return renew_mutex(lock, revoke, value, ttl)
