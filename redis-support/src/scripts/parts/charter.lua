--- @include "token"
--- @include "member"
-- As far ahead of the clock the server follows a wish: `Claim::WISHED_AHEAD`.
local WISHED_AHEAD = token_at(1000000)

-- Whether this process gives votes under the charter.
local function has_vote(member, charter)
  local run, enlisted = unpack(redis.call('HMGET', member, 'run', 'charter'))
  return enlisted == charter and run == this_run()
end

-- Numbers a grant above the floor, and raises that. `wish`: a number that the token is to reach.
local function number_under_charter(fence, floor_key, micros, spare, wish)
  local floor = redis.call('GETEX', floor_key)
  if not floor then
    return nil, redis.error_reply(NO_MEMBER)
  end
  local now = token_at(micros)
  local least = math.max(now, floor + 1, wish <= now + WISHED_AHEAD and wish or 0)
  local first, more = number_from(fence, least, math.min(spare, least - floor - 1))
  if first then
    redis.call('SET', floor_key, digits(first + more))
  end
  return first, more
end
