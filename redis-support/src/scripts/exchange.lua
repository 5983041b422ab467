-- Releases and acquires many mutexes of one client.
--
-- KEYS  fence, crowd, the locks to release, the locks to acquire
-- ARGV  how many locks to release, TTL of the others in ms, the value of each lock in the order of the keys
-- Returns  the first token, how many tokens each acquired lock has, and the numbers (from 1) of the locks that it left alone: the n-th lock
-- to acquire has the n-th share of the tokens. Each lock that was left alone takes a script of its own.
--
-- The crowd names the locks that have a queue, units or a request to revoke them: those need more than this script knows.
local call, locks, values = redis.call, {unpack(KEYS, 3)}, {unpack(ARGV, 3)}
local fence, crowd, leaving, ttl = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2]
local count, coming = #locks, #locks - leaving
-- As many numbers as one lock may have (`LockOptions::hand_over`). After a failover, a server may not know of the last grants: a share of all the
-- time since the last grant that it knows would begin below their tokens.
local NUMBERS = 65536
local marks = call('EXISTS', crowd) == 1 and call('ZMSCORE', crowd, unpack(locks))

local held = leaving > 0 and call('MGET', unpack(locks, 1, leaving))

-- The numbers come before all other writes: a script that fails here has released and granted nothing.
local first, share = 0, 1
if coming > 0 then
  local time, known = call('TIME'), call('GET', fence)
  -- Each microsecond has two (`Grant::TOKENS_PER_MICROSECOND`).
  local now, last = 2 * (time[1] * 1000000 + time[2]), known and tonumber(known)
  if known and not last then
    return redis.error_reply('WRONGTYPE the fence is not a number')
  end
  -- The locks share the numbers of the time since the last grant, of which nothing is known where the counter was lost.
  share = last and math.max(math.floor(math.min(now - last, NUMBERS) / coming), 1) or 1
  first = last and math.max(last + 1, now - coming * share + 1) or now
  local final = first + coming * share - 1
  if final >= 9007199254740992 then
    return redis.error_reply('ERR no fencing token is left')
  end
  call('SET', fence, string.format('%.0f', final))
end

local reply, released = {first, share}, {}
for n = 1, leaving do
  if held[n] == values[n] and not (marks and marks[n]) then
    released[#released + 1] = locks[n]
  else
    reply[#reply + 1] = n
  end
end
if released[1] then
  call('DEL', unpack(released))
end
for n = leaving + 1, count do
  if (marks and marks[n]) or not call('SET', locks[n], values[n], 'PX', ttl, 'NX') then
    reply[#reply + 1] = n
  end
end
return reply
