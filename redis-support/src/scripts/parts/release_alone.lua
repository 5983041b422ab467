-- Nobody waits for it: decided before anything else is set up, which takes longer than this.
if redis.call('GET', KEYS[1]) == ARGV[1] and KEYS[2] and redis.call('EXISTS', KEYS[2]) == 0 then
  return redis.call('DEL', KEYS[1])
end
