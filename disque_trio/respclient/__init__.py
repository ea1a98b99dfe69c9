"""The RESP client that the clients of Disque and bananaq share, without their commands."""
