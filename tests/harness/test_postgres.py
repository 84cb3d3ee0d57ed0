"""The PostgreSQL of the tests lends each its databases anew."""

from tests.harness.postgres import PostgresServer


def test_a_database_that_was_given_back_is_lent_again_without_what_was_in_it(postgres_server: PostgresServer) -> None:
    with postgres_server.database() as name:
        left = postgres_server.connect(name)
        left.execute("CREATE TABLE crates (name text)")
    with postgres_server.database() as again, postgres_server.connect(again) as connection:
        assert again == name
        assert connection.execute("SELECT to_regclass('crates')").fetchone() == (None,)
        with postgres_server.database() as other:
            assert other != name
    left.close()
