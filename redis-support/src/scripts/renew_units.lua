-- KEYS: held, units, and, if they are at hand: news, revoke. ARGV: id, TTL in ms, units, who it is.
-- 1: renewed. 2: renewed, and its holder is asked to finish. 0: nobody holds the key. -1: others do.
local id = ARGV[1]
local now = math.floor(clock() / 1000)
local ends = tonumber(redis.call('ZSCORE', KEYS[1], id) or 0)
if ends <= now then
  return last_end(KEYS[1], now) and -1 or 0
end

-- This write is allowed when memory is full. After it, the others are too: the server ends no script half-way.
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('ZADD', KEYS[1], 'XX', digits(now + ARGV[2]), id)
keep(KEYS[1], KEYS[2], now)

local before = redis.call('HGET', KEYS[2], id)
local had = tonumber(string.match(before or '', '^%d+') or ARGV[3])
local has = math.min(had, tonumber(ARGV[3]))
local after = digits(has) .. ' ' .. ARGV[4]
if before and before ~= after then
  redis.call('HSET', KEYS[2], id, after)
  redis.call('HINCRBY', KEYS[2], 'used', digits(has - had))
  if KEYS[3] then
    redis.call('DEL', KEYS[3])
  end
end
-- Read last, so that the server tells this connection when it is asked for back.
return KEYS[4] and redis.call('GET', KEYS[4]) and 2 or 1
