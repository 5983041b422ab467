-- Releases and acquires many mutexes of one client.
--
-- KEYS  fence, contended, the locks to release, the locks to acquire
-- ARGV  number of locks to release, TTL of the acquired locks in ms, the value of each lock in the
--       order of the keys
-- Returns  the first token, the number of tokens of each acquired lock, and the numbers (from 1) of
--          the locks that were left alone. The n-th acquired lock has the n-th part of the tokens.
--          Each lock that was left alone needs its own script.
--
-- The set `contended` contains the locks with a queue, permits or a revocation request. This script
-- cannot handle them.
local call, locks, values = redis.call, {unpack(KEYS, 3)}, {unpack(ARGV, 3)}
local fence, contended, leaving, ttl = KEYS[1], KEYS[2], tonumber(ARGV[1]), ARGV[2]
local count, coming = #locks, #locks - leaving
-- The maximum number of tokens of one lock (`LockOptions::hand_over`). After a failover, a server
-- may not know the last grants. If a lock could get all tokens since the last known grant, its
-- tokens could be smaller than tokens of those grants.
local NUMBERS = 65536
local marks = call('EXISTS', contended) == 1 and call('ZMSCORE', contended, unpack(locks))

local held = leaving > 0 and call('MGET', unpack(locks, 1, leaving))

-- The tokens are chosen before all other writes. If the script fails here, nothing was released or
-- granted.
local first, share = 0, 1
if coming > 0 then
  local time, known = call('TIME'), call('GET', fence)
  -- Each microsecond has two tokens (`Grant::TOKENS_PER_MICROSECOND`).
  local now, last = 2 * (time[1] * 1000000 + time[2]), known and tonumber(known)
  if known and not last then
    return redis.error_reply('WRONGTYPE the fence is not a number')
  end
  -- The locks share the tokens of the time since the last grant. If the counter was lost, this time
  -- is unknown.
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
