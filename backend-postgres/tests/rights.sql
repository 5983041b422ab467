GRANT USAGE ON SCHEMA public TO locker;
GRANT SELECT, UPDATE ON leasehold_stripe TO locker;
GRANT SELECT, INSERT, UPDATE, DELETE ON leasehold_lease TO locker;
GRANT SELECT, UPDATE ON leasehold_member TO locker;
