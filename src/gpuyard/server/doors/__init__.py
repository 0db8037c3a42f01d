"""How people come in: sockets and who is at the other end, how many at once, and the gate that every request passes."""
