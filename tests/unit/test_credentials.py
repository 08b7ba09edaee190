"""Credentials in the notations of programs: found, each exactly; and what only looks like one is left."""

import pytest

from memory_engine.errors import ModelError
from memory_engine.language.masking import SECRETS
from memory_engine.llm.failures import model_error

FOUND = [
    ("curl -H 'authorization: bearer 9f8a7b6c5d4e3f2a1b0c' https://x", "9f8a7b6c5d4e3f2a1b0c"),
    ("use bearer abcdefghijklmnopq1 for it", "abcdefghijklmnopq1"),
    ("header is bearer xYz123abc456def", "xYz123abc456def"),
    ("Authorization: Bearer abcdefghijklmnop", "abcdefghijklmnop"),
    ("Authorization: Basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    ("authorization: basic dXNlcjpodW50ZXIy", "dXNlcjpodW50ZXIy"),
    ("Proxy-Authorization: Basic dXNlcjpwYXNz", "dXNlcjpwYXNz"),
    ('{"Authorization": "Bearer tok_live_88aa77bb66"}', "tok_live_88aa77bb66"),
    ("Authorization: token 0123456789abcdef0123456789abcdef01234567", "0123456789abcdef0123456789abcdef01234567"),
    (
        'Authorization: Digest username="a", response="6629fae49393a05397450978507c4ef1"',
        "6629fae49393a05397450978507c4ef1",
    ),
    ("Cookie: sessionid=38afes7a8; csrftoken=u32t4o3tb3gg43", "38afes7a8"),
    ("Set-Cookie: sid=s%3Aabc123def456; Path=/; HttpOnly", "s%3Aabc123def456"),
    ("cookie: a=b; auth=ZXlKaGJHY2lPaUpJVXpJMU5pSjk", "ZXlKaGJHY2lPaUpJVXpJMU5pSjk"),
    ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
    ("AWS_SESSION_TOKEN=IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJHMEUCIQDr", "IQoJb3JpZ2luX2VjEHoaCXVzLWVhc3QtMSJHMEUCIQDr"),
    (
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcde",
        "github_pat_11ABCDEFG0abcdefghijkl_mnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcde",
    ),
    ("glpat-x1Yz_2Ab3Cd4Ef5Gh6Ij", "glpat-x1Yz_2Ab3Cd4Ef5Gh6Ij"),
    (
        "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
        "xoxb-123456789012-1234567890123-AbCdEfGhIjKlMnOpQrStUvWx",
    ),
    ("https://hooks.slack.com/services/T00000000/B00000000/XXXXXXXXXXXXXXXXXXXXXXXX", "XXXXXXXXXXXXXXXXXXXXXXXX"),
    ("AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY", "AIzaSyD-9tSrke72PouQMnMX-a7eZSW0jkFMBWY"),
    ("ya29.a0AfH6SMBx_abc123", "ya29.a0AfH6SMBx_abc123"),
    ("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", "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"),
    ("sk-ant-api03-AbC1-dEf2_GhI3-jKl4AA", "sk-ant-api03-AbC1-dEf2_GhI3-jKl4AA"),
    ("hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567", "hf_AbCdEfGhIjKlMnOpQrStUvWxYz01234567"),
    ("redis://:p4ssw0rd@cache:6379/0", "p4ssw0rd"),
    ("postgresql+asyncpg://svc:S3cr%40t@db.internal/app?sslmode=require", "S3cr%40t"),
    ("mongodb+srv://admin:hunter2@cluster0.abc.mongodb.net", "hunter2"),
    ("amqp://guest:gu3st@mq/", "gu3st"),
    ("https://oauth2:ghx1234@git.example.org/a.git", "ghx1234"),
    ("Server=db;Database=app;User Id=sa;Password=Yukon900;", "Yukon900"),
    (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=abcd1234EFGH5678ijkl==;EndpointSuffix=core",
        "abcd1234EFGH5678ijkl==",
    ),
    ("jdbc:mysql://h/db?user=root&password=hunter22&ssl=1", "hunter22"),
    ("GET /v1/x?api_key=abc123def456&q=1", "abc123def456"),
    ("https://s3/x?X-Amz-Signature=5f2b1c0de4a9&X-Amz-Date=2020", "5f2b1c0de4a9"),
    ("https://a.blob.core.windows.net/c/b?sv=2020&sig=kT8f%2Fab12cd34ef56gh78%3D", "kT8f%2Fab12cd34ef56gh78%3D"),
    ("machine api.x.org login joe password s3same!", "s3same!"),
    ("//registry.npmjs.org/:_authToken=npm_abcdefghijklmnop1234", "npm_abcdefghijklmnop1234"),
    ("//registry.npmjs.org/:_authToken=5d3f0a1e-1b2c-4d3e-8f9a-444444444444", "5d3f0a1e-1b2c-4d3e-8f9a-444444444444"),
    ("curl -u admin:letmein1 https://x", "letmein1"),
    ("curl --user admin:letmein1 https://x", "letmein1"),
    ('{"auths":{"r.io":{"auth":"dXNlcjpwYXNzd29yZDE="}}}', "dXNlcjpwYXNzd29yZDE="),
    ("x-api-key: 4f9c2b1d8e", "4f9c2b1d8e"),
    ("OPENAI_API_KEY=sk-1234567890abcdef1234", "sk-1234567890abcdef1234"),
    ("export STRIPE_SECRET=whatever-long-9", "whatever-long-9"),
    ("bot token 123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw", "123456789:AAHdqTcvCH1vGWJxfSeofSAs0K5PALDsaw"),
    (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEAAAAA\n-----END OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1rZXktdjEAAAAA",
    ),
    ("-----BEGIN PGP PRIVATE KEY BLOCK-----\nlQPGBF\n-----END PGP PRIVATE KEY BLOCK-----", "lQPGBF"),
    ('"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQIBADAN\\n-----END PRIVATE KEY-----\\n"', "MIIEvQIBADAN"),
    (
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
        "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ),
    ("My API key is sk-proj-Ab12Cd34Ef56Gh78Ij90", "sk-proj-Ab12Cd34Ef56Gh78Ij90"),
    ("the password is hunter2-Zebra!9", "hunter2-Zebra!9"),
    ("PGPASSWORD=hunter22 psql -h db", "hunter22"),
    ("client_secret=abc~DEF123.ghi", "abc~DEF123.ghi"),
    ("kubectl create secret generic x --from-literal=password=S3cure77", "S3cure77"),
    ("Incorrect API key provided: sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12", "sk-proj-Ab12Cd34Ef56Gh78Ij90Kl12"),
    ("vault token: hvs.CAESIJabcdefgh12345678", "hvs.CAESIJabcdefgh12345678"),
    (
        "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",
        "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",
    ),
    ("TWILIO_AUTH_TOKEN: 0a1b2c3d4e5f60718293a4b5c6d7e8f9", "0a1b2c3d4e5f60718293a4b5c6d7e8f9"),
    ("gho_16C7e42F292c6912E7710c838347Ae178B4a", "gho_16C7e42F292c6912E7710c838347Ae178B4a"),
    ('<add key="ApiKey" value="a8b7c6d5e4" />', "a8b7c6d5e4"),
    ("{'name': 'DB_PASSWORD', 'value': 'hunter2x'}", "hunter2x"),
    ("SECRET_KEY = 'django-insecure-#8&abc1'", "django-insecure-#8&abc1"),
    ('the passphrase: "open sesame now"', "open sesame now"),
]
FURTHER = [
    ("$ curl --header 'Authorization: Bearer e7c1a9f04b2d' https://api.example.org/v1", "e7c1a9f04b2d"),
    ('headers = {"authorization": "bearer 7yHq2LmZ90aPx"}', "7yHq2LmZ90aPx"),
    ("requests.get(url, headers={'Authorization': f'Token 5b7e19ac44d0'})", "5b7e19ac44d0"),
    ("AUTHORIZATION=Basic YWRtaW46czNjcmV0", "YWRtaW46czNjcmV0"),
    ("> Cookie: connect.sid=s%3Aq9W2e8R7t6; theme=dark", "s%3Aq9W2e8R7t6"),
    ('"set-cookie": "JSESSIONID=8F2A77C1D0; Secure"', "8F2A77C1D0"),
    (
        "[default]\naws_access_key_id=ASIAY34FZKBOKMUTVV7A\naws_secret_access_key=b/Hq7+ZkT2mX9vLw4NcR8sYdE1fGuJ0oPiQaStUv\n",
        "b/Hq7+ZkT2mX9vLw4NcR8sYdE1fGuJ0oPiQaStUv",
    ),
    ("secretKey: 'kT9-zz81-qq'", "kT9-zz81-qq"),
    ("spring.datasource.password=Wint3r!sun", "Wint3r!sun"),
    ("mysql://root:Tr3e%23house@127.0.0.1:3306/shop", "Tr3e%23house"),
    ("DATABASE_URL=postgres://u:9dK_2x@ec2.example.org:5432/d", "9dK_2x"),
    ("ftp://bob:fl0wers@files.example.org/in", "fl0wers"),
    (
        "git remote set-url origin https://deploy:glpat-Zz9Yy8Xx7Ww6Vv5Uu4@gitlab.example.org/a/b.git",
        "glpat-Zz9Yy8Xx7Ww6Vv5Uu4",
    ),
    (
        "npm config set //npm.pkg.github.com/:_authToken ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
        "ghp_A1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q7r8",
    ),
    ("slack: xoxp-998877665544-112233445566-abcDEF123", "xoxp-998877665544-112233445566-abcDEF123"),
    (
        "webhook https://hooks.slack.com/services/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",
        "q1W2e3R4t5Y6u7I8o9P0a1S2",
    ),
    ("GOOGLE_API_KEY: AIzaSyB3x_9kQwErTyUiOpAsDfGhJkLzXcVbNm1", "AIzaSyB3x_9kQwErTyUiOpAsDfGhJkLzXcVbNm1"),
    ("refresh_token: 1//0gXyZ123abcDEF-456ghi_789", "1//0gXyZ123abcDEF-456ghi_789"),
    ("ANTHROPIC_API_KEY=sk-ant-api03-x9_Yz8-W7v6U5t4S3r2Q1", "sk-ant-api03-x9_Yz8-W7v6U5t4S3r2Q1"),
    ('HF_TOKEN = "hf_qWeRtYuIoPaSdFgHjKlZxCvBnM1234"', "hf_qWeRtYuIoPaSdFgHjKlZxCvBnM1234"),
    ("-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIB1x\n-----END EC PRIVATE KEY-----", "MHcCAQEEIB1x"),
    ("-----BEGIN ENCRYPTED PRIVATE KEY-----\\nMIIFHDBOBg\\n-----END ENCRYPTED PRIVATE KEY-----", "MIIFHDBOBg"),
    ("access_token=eyJraWQiOiJhIn0.eyJpc3MiOiJodHRwczovL2EifQ.c2lnbmF0dXJl", "c2lnbmF0dXJl"),
    ("wget --user=joe --password=Pa55phrase http://x", "Pa55phrase"),
    ("docker login -u ci -p 8h7g6f5d registry.example.org", "8h7g6f5d"),
    ("sshpass -p 'M00nlight' ssh host", "M00nlight"),
    ("redis-cli -a s3cr3tredis ping", "s3cr3tredis"),
    ('env:\n  - name: SMTP_PASSWORD\n    value: "letters&5"', "letters&5"),
    ("User ID=app;Pwd=qwe-123-rty;Server=tcp:x", "qwe-123-rty"),
    ("SharedAccessKey=Abc123+def456/ghi789jkl=;EntityPath=q", "Abc123+def456/ghi789jkl="),
    ("https://maps.example.org/?q=Oslo&access_token=pk.99ab88cd77ef", "pk.99ab88cd77ef"),
    ("stripe.api_key = 'sk_live_51Hx9Yz8AbCdEf'", "sk_live_51Hx9Yz8AbCdEf"),
    ("TELEGRAM=7712345678:AAF1x2y3Z4w5V6u7T8s9R0q1P2o3N4m5L6k", "7712345678:AAF1x2y3Z4w5V6u7T8s9R0q1P2o3N4m5L6k"),
    ("Die PIN lautet 8841.", "8841"),
    ("the login is ines / pw: Kater_2031", "Kater_2031"),
    ("le mot de passe du wifi est Tournesol77", "Tournesol77"),
]
"""Written when the rules were done, in other notations: 31 of these 36 were found at first."""
LEFT = [
    "Authorization is required for this endpoint.",
    "Set the Authorization header to Bearer <token>.",
    "Authorization: Bearer YOUR_TOKEN",
    "Authorization: Bearer $API_TOKEN",
    "The bearer of this letter may enter hall 3.",
    "Basic training starts at 9.",
    "basic authentication",
    "Cookie: we use cookies for analytics.",
    "Cookie: theme=dark; lang=en",
    "The token bucket has 500 tokens.",
    "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 4b825dc642cb6eb9a060e54bf8d69288fbee4904",
    "id: 01890a5d-ac96-774b-bcce-b302099a8057",
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk",
    "toolu_01A09q90qw90lq917835lq9",
    "call_9diWc1DYm4RLmPfHgIaP2wd",
    "self._api_key = api_key",
    "password = getpass.getpass()",
    "password: str = field(repr=False)",
    "const token = await getToken();",
    "token: ${{ secrets.GITHUB_TOKEN }}",
    "api_key=os.environ['OPENAI_API_KEY']",
    "docker run -u 1000:1000 image",
    "http://localhost:8080/a@b",
    "postgres://user:password@localhost/db",
    "The API key was rotated yesterday.",
    "Please reset the password for me.",
    "ISBN 978-3-16-148410-0",
    "tel. +49 30 901820",
    "max_tokens: 4096, token_count=12",
    "see sk-learn and pk-fields",
    "the secret is to let the dough rest",
    " -----BEGIN CERTIFICATE-----\nMIIBIjAN\n-----END CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ9x a@b",
    "Incorrect API key provided: sk-abc*******wxyz.",
    "https://x-token-auth@bitbucket.org",
]


@pytest.mark.parametrize(("text", "secret"), FOUND + FURTHER)
def test_a_credential_leaves_no_trace(text: str, secret: str) -> None:
    """Its value is gone, and the text around it is still there to be read."""
    masked = SECRETS(text, "model")
    assert secret not in masked
    assert masked == SECRETS(masked, "model")


@pytest.mark.parametrize("text", LEFT)
def test_ordinary_text_stays(text: str) -> None:
    """Headers without a value, placeholders, code, hashes, ids, images, certificates, prose about secrets."""
    assert text == SECRETS(text, "model")


@pytest.mark.parametrize("key", ["x", "a", "ollama", "EMPTY", "none", "sk-1"])
def test_a_key_that_is_no_secret_masks_no_words(key: str) -> None:
    """Servers that ask for no key are given a letter or a word, which error texts are full of."""
    said = "ollama: a model named x is not there, none is EMPTY: sk-1"
    assert said == model_error("m", RuntimeError(said), secret=key).error


@pytest.mark.parametrize(
    ("said", "masked"),
    [
        ("401: Incorrect key: my-company-proxy-pass", "401: Incorrect key: [key]"),
        ("401: my-company-proxy-passage is long", "401: my-company-proxy-passage is long"),
        ("Error code: 401 - authorization: bearer 8f7e6d5c4b", "Error code: 401 - authorization: [secret:key]"),
        ("x" * 480 + " AIzaSyC9x8W7v6U5t4S3r2Q1p0OnMlKjIhGfEdC", "x" * 480 + " [secret:key]"),
    ],
)
def test_the_error_of_a_provider_is_masked_before_it_is_cut(said: str, masked: str) -> None:
    """The key that was given, as a whole; any other by its look, also at the end of the text that is kept."""
    assert masked == model_error("m", RuntimeError(said), secret="my-company-proxy-pass").error


def test_an_error_says_what_it_said() -> None:
    """Its reason, and whether another try may help, come from the original."""
    error = model_error("m", RuntimeError("maximum context length is 8192, password: hunter2"))
    assert isinstance(error, ModelError)
    assert "hunter2" not in str(error)
