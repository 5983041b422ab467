-- KEYS: lock, revoke, of one lock after the other. ARGV: value, TTL in ms, of one lock after the other.
-- Of each: 1: renewed. 2: renewed, and its holder is asked to finish. Nil: it is to be renewed by itself, since it is not there.
-- Uses no command that fails when memory is full.
local count = #ARGV / 2
local locks = {}
for n = 1, count do
  locks[n] = KEYS[2 * n - 1]
end
local held = redis.call('MGET', unpack(locks))

local reply = {}
for n = 1, count do
  reply[n] = held[n] == ARGV[2 * n - 1] and redis.call('PEXPIRE', locks[n], ARGV[2 * n])
end
-- Read after the write, so that the server tells this connection when anybody changes the keys.
local now = redis.call('MGET', unpack(KEYS))
for n = 1, count do
  if reply[n] and now[2 * n] == held[n] then
    reply[n] = 2
  end
end
return reply
