--- @include "token"
--- @include "member"
-- How far ahead of the clock a requested minimum token may be (`Vote::MAX_AHEAD`).
local MAX_AHEAD = token_at(1000000)

-- Returns whether this process votes under the quorum configuration.
local function has_vote(member, charter)
  local run, joined = unpack(redis.call('HMGET', member, 'run', 'charter'))
  return joined == charter and run == this_run()
end

-- Chooses a token above the minimum token, and raises the minimum token. `requested` is
-- the requested minimum token.
local function number_for_vote(fence, floor_key, micros, spare, requested)
  local floor = redis.call('GETEX', floor_key)
  if not floor then
    return nil, redis.error_reply(NO_MEMBER)
  end
  local now = token_at(micros)
  local least = math.max(now, floor + 1, requested <= now + MAX_AHEAD and requested or 0)
  local first, more = number_from(fence, least, math.min(spare, least - floor - 1))
  if first then
    redis.call('SET', floor_key, digits(first + more))
  end
  return first, more
end
