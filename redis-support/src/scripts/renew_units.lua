-- KEYS: held, units, and, if they are at hand: queue, places, news, revoke, lock, crowd. ARGV: id, TTL in ms, units, description.
-- 1: renewed. 2: renewed, and its holder is asked to finish. 0: the key is free. -1: others hold it. The ids of the claims that were called
-- up may follow.
local id = ARGV[1]
local now = math.floor(clock() / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[1], id) or 0)
if ends <= now then
  return last_end(KEYS[1], now) and -1 or 0
end

-- This write is allowed when memory is full. After it, the others are too: the server ends no script half-way.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
if KEYS[8] then
  mark(KEYS[8], KEYS[7], now + ARGV[2], now)
end
redis.call('ZADD', KEYS[1], 'XX', digits(now + ARGV[2]), id)
keep(KEYS[1], KEYS[2], now)

local before = redis.call('HGET', KEYS[2], id)
local had, granted = string.match(before or '', '^(%d+)(%S*)')
had = tonumber(had or ARGV[3])
local has = math.min(had, tonumber(ARGV[3]))
local after = record(digits(has), granted or '', ARGV[4])
local called = {}
if before and before ~= after then
  redis.call('HSET', KEYS[2], id, after)
  local used = redis.call('HINCRBY', KEYS[2], 'used', digits(has - had))
  if KEYS[5] then
    redis.call('DEL', KEYS[5])
  end
  if KEYS[5] and has < had then
    called = call_up(KEYS[3], KEYS[4], KEYS[5], used, 1, now)
  end
end
-- Read last, so that the server tells this connection when it is asked for back.
return with_called(KEYS[6] and redis.call('GET', KEYS[6]) and 2 or 1, called)
