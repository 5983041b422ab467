-- KEYS: member. ARGV: those of `stand`, the identity that the member must have, the charter, and the number that all later tokens under it
-- exceed. The reply: see `stand`.
local standing = stand()
local charter = standing[2]
if standing[1] == ARGV[5] and (not charter or charter == ARGV[6]) then
  raise(ARGV[1], ARGV[7])
  redis.call('HSET', KEYS[1], 'charter', ARGV[6])
  standing[2], standing[3] = ARGV[6], redis.call('GETEX', ARGV[1])
end
return standing
