"""Jobs that go to other nodes because clients wait there, and jobs that come from them."""
