-- A renewal that raises the floor. KEYS: lock, revoke, fence. ARGV: those of `renew`, the floor, and the key of the member's floor.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  if not raise(KEYS[3], ARGV[3]) then
    return redis.error_reply('WRONGTYPE the fence of this key is not a number')
  end
  if redis.call('GETEX', ARGV[4]) then
    raise(ARGV[4], ARGV[3])
  end
end
