GRANT USAGE ON SCHEMA public TO locker;
GRANT SELECT, INSERT, UPDATE, DELETE ON public.leasehold_key TO locker;
GRANT SELECT, UPDATE ON SEQUENCE public.leasehold_min_token TO locker;
GRANT SELECT, UPDATE ON public.leasehold_member TO locker;
