"""Commands of any server that speaks RESP: AUTH, CLIENT, CONFIG, INFO, SLOWLOG and the like."""
