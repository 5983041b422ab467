GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_key TO 'locker';
GRANT SELECT, UPDATE ON leasehold_min_token TO 'locker';
GRANT SELECT, UPDATE ON leasehold_member TO 'locker';
