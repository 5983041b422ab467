-- Renews a mutex.
--
-- KEYS  lock, and, if it is at hand: revoke
-- ARGV  value, TTL in ms
-- Returns  1: renewed; 2: renewed, and its holder is asked to finish; 0: no lock lies under the key; -1: another one does
local lock, revoke = unpack(KEYS)
local value, ttl = unpack(ARGV)
--- @include "renew_mutex"
return renew_mutex(lock, revoke, value, ttl)
