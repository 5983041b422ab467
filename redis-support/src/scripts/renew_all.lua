-- Renews many mutexes of one client.
--
-- KEYS  contended, the locks
-- ARGV  TTL in ms, the value of each lock in the order of the keys
-- Returns  the numbers (from 1) of the locks that were not renewed. Each of these locks needs its
--          own script.
--
-- Uses only commands that work when the memory is full.
local call, locks, values = redis.call, {unpack(KEYS, 2)}, {unpack(ARGV, 2)}
local contended, ttl = KEYS[1], ARGV[1]
local marks = call('EXISTS', contended) == 1 and call('ZMSCORE', contended, unpack(locks))
local held, reply = call('MGET', unpack(locks)), {}
for n = 1, #locks do
  if held[n] == values[n] and not (marks and marks[n]) then
    call('PEXPIRE', locks[n], ttl)
  else
    reply[#reply + 1] = n
  end
end
-- Read after the writes, so that the server notifies this connection when other clients change the
-- locks.
call('EXISTS', unpack(locks))
return reply
