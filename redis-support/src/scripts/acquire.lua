-- KEYS: lock, fence, held, queue, revoke, places, news, and the news that are for this claim alone.
-- ARGV: value, TTL in ms, how many spare tokens are wanted, id, for how many ms a place in the queue is wanted (0: not at all),
-- for how many ms it is waited for once the key is free (0: until its place ends), and, if it hears of it, the channel on which it is
-- told that it was made the holder.
-- Granted: {1, token, how many more}. Refused: {0, ms until what is in the way ends by itself (negative: unknown), remaining
-- TTL in ms (negative: for ever), value of who holds it or nil, and, if it has a place without having asked for one, for how
-- many ms, and, if it may be made the holder meanwhile, the number of this attempt}.
local value, id, place = ARGV[1], ARGV[4], tonumber(ARGV[5])
local now = math.floor(micros / 1000)
local rank = others and place > 0 and place_of(KEYS[4], KEYS[6], id, now)

-- The server tells of what was read (Redis 7.0, as measured, of all keys that the script names), so who queues and is not to
-- look yet does not read the lock. Without a place it may hold the lock, and not know it.
if rank and rank > 1 and wanted_before(KEYS[4], KEYS[6], rank, now) > 1 then
  return wait_turn(rank, micros, {0, -1, -1, false})
end

local held = redis.call('GET', KEYS[1])
if held and held ~= value then
  local left = redis.call('PTTL', KEYS[1])
  return wait_turn(rank, micros, {0, left, left, string.sub(held, 1, 512)})
end
if not held and others then
  if last_end(KEYS[3], now) then
    return redis.error_reply('WRONGTYPE it is held in units, as a semaphore or by readers and writers')
  end
  local wanted, first = wanted_before(KEYS[4], KEYS[6], rank, now)
  if wanted > 0 then
    local reserved = reserve(KEYS[4], KEYS[6], now) or first
    return wait_turn(rank, micros, {0, first and math.min(first, reserved) or -1, -1, false})
  end
end

local token, spare = number_grant(KEYS[2], micros, tonumber(ARGV[3]))
if not token then
  return spare
end
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
if others and not held then
  -- Nobody has asked for it back yet.
  redis.call('DEL', KEYS[5])
  if redis.call('ZREM', KEYS[4], id) == 1 then
    redis.call('HDEL', KEYS[6], id)
    tell(KEYS[7], {id, redis.call('ZRANGE', KEYS[4], 0, 0)[1]})
  end
end
-- Read after the write, so that the server tells this connection when anybody changes the key.
redis.call('GET', KEYS[1])
return {1, token, spare}
