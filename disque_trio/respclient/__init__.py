"""The RESP client shared by the clients of Disque and bananaq, without their commands."""
