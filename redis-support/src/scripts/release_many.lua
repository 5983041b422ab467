-- KEYS: lock, queue, of one lock after the other. ARGV: value, of one lock after the other.
-- Of each: 1: released. Nil: it is to be released by itself: somebody waits, or it is not there.
local call, keys, args = redis.call, KEYS, ARGV
local count = #args
local locks, queues = {}, {}
for n = 1, count do
  locks[n], queues[n] = keys[2 * n - 1], keys[2 * n]
end
local is_crowded = call('EXISTS', unpack(queues)) > 0
local held = call('MGET', unpack(locks))

local reply, released = {}, {}
for n = 1, count do
  reply[n] = false
  if held[n] == args[n] and not (is_crowded and call('EXISTS', queues[n]) == 1) then
    released[#released + 1] = locks[n]
    reply[n] = 1
  end
end
if #released > 0 then
  call('DEL', unpack(released))
end
return reply
