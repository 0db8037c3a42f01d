from gpuyard.worlds.sim.seed import GoDice, SeededDice


def test_go_dice_give_the_numbers_that_go_gives():
    dice = GoDice(1)
    assert [dice.int63() for _ in range(3)] == [5577006791947779410, 8674665223082153551, 6129484611666145821]


def test_go_dice_with_another_seed_give_other_numbers():
    assert GoDice(42).int63() != GoDice(43).int63()


def test_shuffling_keeps_everything():
    assert sorted(GoDice(42).shuffled(range(100))) == list(range(100))


def test_integers_stay_below_their_bound():
    go, python = GoDice(7), SeededDice(7)
    assert all(0 <= dice.integer(below) < below for dice in (go, python) for below in (1, 3, 8, 8152))


def test_chance_is_the_same_from_the_same_seed():
    assert [SeededDice(5).random() for _ in range(2)] == [SeededDice(5).random() for _ in range(2)]
