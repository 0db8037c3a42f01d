"""What commands share: how one is declared, where its input comes from, how it speaks and writes. Knows no command."""
