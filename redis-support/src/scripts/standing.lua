-- KEYS, ARGV and the reply: see `stand`.
return stand()
