"""What a run leaves for its reader: table, answers, cards, folder names; and what is made of them later."""
