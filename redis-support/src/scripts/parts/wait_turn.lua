-- Refuses `claim`: keeps a place for it if it waits, and has the server tell it when to look again. It has the place `rank`, or none.
-- The first waiter for a mutex hears of the lock; all others have a key of their own. `refusal`: {0, ms until the obstacle ends by
-- itself (negative: unknown), remaining TTL in ms (negative: for ever), a holder or false, its record or false}. The reply goes on with
-- the ms for which the claim has a place and the number of claims before it (both -1: it has none), and with the ids of the claims that
-- were called up.
local function wait_turn(claim, rank, micros, refusal, called)
  local place, queued = claim.place, false
  local function take_place()
    local now = math.floor(micros / 1000)
    mark(claim.crowd, KEYS[1], now + place, now)
    return queue_up(KEYS[4], KEYS[6], claim.id, rank, claim.terms, place, micros)
  end
  if place > 0 and claim.patience == 0 then
    queued, rank = true, take_place()
  elseif place > 0 then
    -- When memory is full there is no place, and those that would do without one poll.
    queued, rank = pcall(take_place)
  end
  refusal[6], refusal[7] = queued and place or -1, queued and rank or -1
  if queued and (rank > 0 or not claim.hears_of_lock) then
    -- It outlasts a few attempts, so that it need not be written each time.
    if not redis.call('GET', claim.news) then
      redis.pcall('SET', claim.news, '1', 'PX', 4 * place)
      redis.call('GET', claim.news)
    end
  end
  for _, id in ipairs(called) do
    refusal[#refusal + 1] = id
  end
  return refusal
end
