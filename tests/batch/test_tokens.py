"""Estimates of tokens, compared with counts of OpenAI's tokenizers.

The counts were made on 2026-11-18 with tiktoken 0.14: o200k_base (GPT-4o and later), cl100k_base (GPT-4 and GPT-3.5).
"""

import pytest

from prompty.tokens import ERROR, FACTOR, estimate_tokens, is_latin

TEXTS = {
    "English": (
        "The committee met on Thursday to discuss the proposal, and although several members raised concerns "
        "about the budget, it was approved by a narrow majority. Customers who ordered before March 3 will "
        "receive a refund of $24.50 within ten business days; everyone else should contact support@example.com."
    ),
    "German": (
        "Die Kundin beschwert sich über die verspätete Lieferung ihrer Waschmaschine und möchte wissen, ob sie "
        "vom Kaufvertrag zurücktreten kann. Bitte antworten Sie höflich, nennen Sie die gesetzlichen "
        "Gewährleistungsfristen und bieten Sie einen Gutschein über 25 Euro an."
    ),
    "French": (
        "Le client souhaite annuler sa commande parce que le délai de livraison n'a pas été respecté. Veuillez "
        "rédiger une réponse courtoise qui rappelle les conditions générales de vente et propose un "
        "remboursement intégral sous quatorze jours."
    ),
    "Spanish": (
        "El cliente se queja de que el paquete llegó abierto y de que faltaban dos piezas. Escriba una "
        "respuesta amable, pida una fotografía del embalaje y ofrezca enviar las piezas que faltan sin coste "
        "alguno antes del viernes."
    ),
    "Italian": (
        "Il viaggiatore chiede se può spostare la prenotazione alla settimana successiva senza pagare una "
        "penale. Rispondi in modo gentile, spiegando le condizioni della tariffa e le alternative disponibili."
    ),
    "Polish": (
        "Klient pisze, że przesyłka została uszkodzona podczas transportu i prosi o wymianę towaru. Proszę "
        "odpowiedzieć uprzejmie, przeprosić za niedogodności i wyjaśnić, jak złożyć reklamację."
    ),
    "Turkish": (
        "Müşteri, siparişinin neden geciktiğini öğrenmek istiyor ve iade koşullarını soruyor. Lütfen kibar bir "
        "yanıt yazın, gecikme için özür dileyin ve en yakın teslimat tarihini belirtin."
    ),
    "Russian": (
        "Покупатель жалуется на задержку доставки и спрашивает, можно ли вернуть деньги. Напишите вежливый "
        "ответ, извинитесь за неудобства и объясните, как оформить возврат товара в течение четырнадцати дней."
    ),
    "Greek": (
        "Ο πελάτης παραπονιέται για την καθυστέρηση της παράδοσης και ρωτά αν μπορεί να πάρει πίσω τα χρήματά "
        "του. Γράψτε μια ευγενική απάντηση και εξηγήστε τη διαδικασία επιστροφής."
    ),
    "Hindi": (
        "ग्राहक ने शिकायत की है कि सामान समय पर नहीं पहुँचा और वह अपने पैसे वापस चाहता है। कृपया विनम्र उत्तर "
        "लिखें, देरी के लिए क्षमा माँगें और वापसी की प्रक्रिया समझाएँ।"
    ),
    "Arabic": (
        "يشتكي العميل من تأخر التسليم ويسأل عما إذا كان بإمكانه استرداد أمواله. يرجى كتابة رد مهذب والاعتذار "
        "عن التأخير وشرح خطوات إرجاع المنتج خلال أربعة عشر يوما."
    ),
    "Hebrew": (
        "הלקוח מתלונן על עיכוב במשלוח ושואל אם הוא יכול לקבל את כספו בחזרה. אנא כתבו תשובה מנומסת, התנצלו על "
        "העיכוב והסבירו כיצד להחזיר את המוצר."
    ),
    "Chinese": (
        "客户投诉包裹没有按时送达,并询问是否可以退款。请写一封礼貌的回复,为延误道歉,并说明如何在十四天内退回商品。"
    ),
    "Japanese": (
        "お客様は商品の配送が遅れていることについて問い合わせており、返金が可能かどうかを知りたがっています。"
        "丁寧な返信を書き、遅延をお詫びし、返品の手順を説明してください。"
    ),
    "Korean": (
        "고객이 배송이 늦어진 것에 대해 불만을 제기하고 환불이 가능한지 묻고 있습니다. 정중하게 답변을 "
        "작성하고 지연에 대해 사과하며 반품 절차를 설명해 주세요."
    ),
    "Thai": ("ลูกค้าร้องเรียนว่าสินค้าส่งล่าช้าและต้องการทราบว่าสามารถขอเงินคืนได้หรือไม่ กรุณาเขียนคำตอบอย่างสุภาพและอธิบายขั้นตอนการคืนสินค้า"),
    "emoji": ("😀🎉 great!! 🚀🚀 love it ❤️👍🏽 👩\u200d💻 see you 🌍✈️🏝️ 😂😂😂 💯🔥"),
    "base64": (
        "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==aGVsbG"
        "8gd29ybGQgdGhpcyBpcyBhIHRlc3Qgc3RyaW5nIGZvciB0b2tlbnM="
    ),
    "JSON": (
        '{"id": "ord_1029384", "customer": {"name": "Ada Lovelace", "email": "ada@example.com", "tier": '
        '"gold"}, "items": [{"sku": "WM-2291-B", "quantity": 2, "unit_price": 349.99}, {"sku": "HX-10", '
        '"quantity": 1, "unit_price": 12.5}], "shipped": false, "notes": null}'
    ),
    "Python": (
        "def find_overlap(first: list[int], second: list[int]) -> set[int]:\n    "
        '"""Return the numbers that are in both lists."""\n    '
        "seen = set(first)\n    "
        "result: set[int] = set()\n    "
        "for number in second:\n        "
        "if number in seen and number not in result:\n            "
        "result.add(number)\n    "
        "return result\n"
    ),
    "numbers": (
        "2026-11-18 11:03:27.118 INFO 10.0.3.17 GET /api/v2/orders/8812734 200 1532 0.0482\n"
        "2026-11-18 11:03:27.241 WARN 10.0.3.18 POST /api/v2/payments 429 88 0.0031\n"
    ),
}
COUNTS = {
    "English": (57, 57),
    "German": (57, 70),
    "French": (48, 60),
    "Spanish": (50, 63),
    "Italian": (46, 52),
    "Polish": (61, 68),
    "Turkish": (53, 75),
    "Russian": (50, 87),
    "Greek": (59, 148),
    "Hindi": (49, 156),
    "Arabic": (50, 108),
    "Hebrew": (55, 134),
    "Chinese": (44, 56),
    "Japanese": (57, 88),
    "Korean": (51, 80),
    "Thai": (51, 108),
    "emoji": (36, 52),
    "base64": (93, 98),
    "JSON": (98, 98),
    "Python": (69, 69),
    "numbers": (84, 84),
}
LATIN = ("English", "German", "French", "Spanish", "Italian", "Polish", "Turkish", "JSON", "Python", "numbers")
NO_WORDS = ("base64", "emoji")  # of no script, and wrong by a factor of 2


@pytest.mark.parametrize("name", LATIN)
def test_latin_text_is_estimated_within_the_stated_error(name: str) -> None:
    assert is_latin(TEXTS[name])
    assert estimate_tokens(TEXTS[name]) == pytest.approx(COUNTS[name][0], rel=ERROR)


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_is_estimated_within_the_stated_factor(name: str) -> None:
    assert is_latin(TEXTS[name]) == (name in LATIN + NO_WORDS)
    for count in COUNTS[name]:
        assert count / FACTOR < estimate_tokens(TEXTS[name]) < count * FACTOR


def test_nothing_has_no_tokens_and_a_long_text_takes_linear_time() -> None:
    assert estimate_tokens("") == 0
    for character in " \n_aAé9.д界\U0001f600":
        assert estimate_tokens(character * 300_000) > 0  # a pattern that backtracks would take hours
