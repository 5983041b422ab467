-- KEYS: lock, fence, held, queue, revoke, places, news, the news that are for this claim alone, and crowd.
-- ARGV: value, TTL in ms, how many spare tokens are wanted, id, for how many ms a place in the queue is wanted (0: not at all),
-- for how many ms it is waited for once the key is free (0: until its place ends), and the channel on which its client hears that the
-- key is kept for it (`-`: it does not).
-- Granted: {1, token, how many more, and the ids of those that were called up}. Refused: see `wait_turn`.
local value, place, patience = ARGV[1], tonumber(ARGV[5]), tonumber(ARGV[6])
local claim = { id = ARGV[4], place = place, patience = patience, news = KEYS[8], crowd = KEYS[9], hears_of_lock = true }
claim.terms = '1 1 ' .. ARGV[6] .. (patience > 0 and ' ' .. ARGV[7] .. ' ' .. value or '')
local now = math.floor(micros / 1000)
local rank, called = false, {}
local wanted, first, living, cleared = 0, nil, 0, 0
if others then
  rank = place > 0 and place_of(KEYS[4], KEYS[6], claim.id, now)
  wanted, first, living, cleared = wanted_before(KEYS[4], KEYS[6], rank, 0, now)
  rank = rank and rank - cleared
  if cleared > 0 then
    called = call_up(KEYS[4], KEYS[6], KEYS[7], 1, 1, now)
  end
end

-- The server tracks keys that were read (Redis 7.0, as measured, all keys that the script names), so a claim that waits behind others
-- does not read the lock. A claim without a place may hold the lock, and not know it.
if rank and rank > 1 and living > 1 then
  return wait_turn(claim, rank, micros, {0, -1, -1, false, false}, called)
end

local held = redis.call('GET', KEYS[1])
if held and held ~= value then
  local left = redis.call('PTTL', KEYS[1])
  return wait_turn(claim, rank, micros, {0, left, left, string.sub(held, 1, 512), false}, called)
end
if not held and others then
  if last_end(KEYS[3], now) then
    return redis.error_reply('WRONGTYPE it is held in units, as a semaphore or by readers and writers')
  end
  if wanted > 0 then
    local soonest
    called, soonest = call_up(KEYS[4], KEYS[6], KEYS[7], 0, 0, now)
    first = math.min(first, soonest or first)
    return wait_turn(claim, rank, micros, {0, first, -1, false, false}, called)
  end
end

local token, spare = number_grant(KEYS[2], micros, tonumber(ARGV[3]))
if not token then
  return spare
end
redis.call('SET', KEYS[1], value, 'PX', ARGV[2])
if others and not held then
  -- A new holder has no request to revoke.
  redis.call('DEL', KEYS[5])
  if place > 0 and forget(KEYS[4], KEYS[6], {claim.id}) then
    tell(KEYS[7], {claim.id})
  end
  called = call_up(KEYS[4], KEYS[6], KEYS[7], 1, 1, now)
  if redis.call('EXISTS', KEYS[4]) == 0 then
    redis.call('ZREM', KEYS[9], KEYS[1])
  end
end
-- Read after the write, so that the server tells this connection when anybody changes the key.
redis.call('GET', KEYS[1])
return {1, token, spare, unpack(called)}
