-- A claim under a charter. KEYS: those of `acquire`, and the member. ARGV: those of `acquire`, the charter, a number that the token is to
-- reach, and the key of the floor, which is not among the keys: Redis 7.0 would tell us of each grant on the server.
local known = redis.call('HMGET', KEYS[10], 'run', 'charter')
if known[2] ~= ARGV[8] or known[1] ~= this_run() then
  return redis.error_reply(NO_MEMBER)
end

-- As far ahead of the clock the server follows a wish, in µs: `Claim::WISHED_AHEAD`.
local WISHED_AHEAD = 1000000

-- Numbers a grant above the floor, and raises that.
local function number_under_charter(fence, micros, spare)
  local floor, wish = redis.call('GETEX', ARGV[10]), tonumber(ARGV[9])
  if not floor then
    return nil, redis.error_reply(NO_MEMBER)
  end
  local least = math.max(micros, floor + 1, wish <= micros + WISHED_AHEAD and wish or 0)
  local first, more = number_grant(fence, least, math.min(spare, least - floor - 1))
  if first then
    redis.call('SET', ARGV[10], digits(first + more))
  end
  return first, more
end
local number_grant = number_under_charter
